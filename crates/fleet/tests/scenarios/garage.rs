//! Vehicles that do as a script says, and a hub that reports it: what the world beside the controllers looks like to them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use setpoint_fleet::kinds::{Task, Vehicle};
use setpoint_runtime::Key;
use setpoint_runtime::cache::Informer;
use setpoint_runtime::controller::{Action, Context, Controller, Error};
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_testkit::ControlPlane;

/// How long each part of an upgrade takes.
const PART: Duration = Duration::from_secs(5);

/// How an attempt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The firmware runs.
    Succeed,
    /// It ends before the vehicle starts from it.
    Fail(&'static str),
    /// The vehicle starts from it and goes back.
    RollBack(&'static str),
    /// Nothing is heard of it.
    Silence,
}

/// All vehicles, as they really are.
#[derive(Default)]
pub struct Garage(Mutex<Inside>);

#[derive(Default)]
struct Inside {
    cars: BTreeMap<String, Car>,
    /// What is wrong with a firmware on every vehicle.
    bad: BTreeMap<String, Fate>,
}

struct Car {
    version: String,
    online: bool,
    fates: VecDeque<Fate>,
    task: Option<Work>,
    /// Every task and attempt that was flashed.
    flashed: Vec<(String, i64)>,
}

#[derive(Clone)]
struct Work {
    id: String,
    attempt: i64,
    version: String,
    fate: Fate,
    began: Timestamp,
    is_flashed: bool,
    ended: bool,
}

impl Garage {
    /// Puts a vehicle into the garage; what happens to its attempts, one after the other. Further ones succeed.
    pub fn park(&self, name: &str, version: &str, online: bool, fates: &[Fate]) {
        let fates = fates.iter().copied().collect();
        let car = Car { version: version.to_owned(), online, fates, task: None, flashed: Vec::new() };
        self.lock().cars.insert(name.to_owned(), car);
    }

    /// Says how every attempt with a firmware ends.
    pub fn spoil(&self, version: &str, fate: Fate) {
        self.lock().bad.insert(version.to_owned(), fate);
    }

    /// How often each vehicle was flashed; an error if one was flashed twice for the same attempt.
    pub fn flashes(&self) -> Result<BTreeMap<String, usize>, String> {
        let inside = self.lock();
        for (name, car) in &inside.cars {
            let mut once = car.flashed.clone();
            once.sort_unstable();
            once.dedup();
            if once.len() != car.flashed.len() {
                return Err(format!("{name} was flashed twice for one attempt: {:?}", car.flashed));
            }
        }
        Ok(inside.cars.iter().map(|(name, car)| (name.clone(), car.flashed.len())).collect())
    }

    /// Those that are installing something at this moment, whatever they should run.
    pub fn flashing(&self) -> Vec<String> {
        let is_flashing = |car: &Car| car.task.as_ref().is_some_and(|work| work.is_flashed && !work.ended);
        self.lock().cars.iter().filter(|(_, car)| is_flashing(car)).map(|(name, _)| name.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap()
    }

    /// What the hub has to write of a vehicle, and when there is more.
    fn look(&self, vehicle: &Vehicle, now: Timestamp) -> (Option<Value>, Option<Duration>) {
        let mut inside = self.lock();
        let bad = inside.bad.clone();
        let Some(car) = inside.cars.get_mut(&vehicle.name_any()) else { return (None, None) };
        let status = vehicle.status.clone().unwrap_or_default();
        let mut report = json!({});
        let connected = status.conditions.iter().find(|condition| condition.type_ == "Connected");
        if connected.map(|condition| condition.status == "True") != Some(car.online) {
            report["conditions"] = json!([connection(car.online, now)]);
        }
        let wake = if car.online { car.work(status.task.as_ref(), &bad, now) } else { None };
        let is_open = status.progress.as_ref().is_some_and(|known| known.result.is_empty());
        if car.online && car.task.is_none() && is_open {
            report["progress"] = Value::Null;
        }
        if let Some(progress) = car.online.then(|| car.progress(now)).flatten() {
            let known = status.progress.map(|known| json!({"stage": known.stage, "result": known.result, "taskId": known.task_id, "attempt": known.attempt}));
            let said = |name: &str| known.as_ref().map(|known| known[name].clone()) == Some(progress[name].clone());
            if !["stage", "result", "taskId", "attempt"].into_iter().all(said) {
                report["progress"] = progress;
            }
        }
        if car.online && status.firmware_version.as_deref() != Some(&car.version) {
            report["firmwareVersion"] = car.version.clone().into();
        }
        (Some(report).filter(|report| *report != json!({})), wake)
    }
}

impl Car {
    /// Goes on with a task. One that it knows is not begun again; one that is being flashed is finished first, whatever is wanted by now.
    fn work(&mut self, task: Option<&Task>, bad: &BTreeMap<String, Fate>, now: Timestamp) -> Option<Duration> {
        let is_at_it = self.task.as_ref().is_some_and(|work| work.is_flashed && !work.ended);
        let is_same = |work: &Work, task: &Task| (&*work.id, work.attempt) == (&*task.id, task.attempt);
        let is_known = |task| self.task.as_ref().is_some_and(|work| is_same(work, task));
        if let Some(task) = task.filter(|task| !is_at_it && !is_known(task)) {
            let fate = bad.get(&task.firmware_version).copied();
            let fate = fate.or_else(|| self.fates.pop_front()).unwrap_or(Fate::Succeed);
            let (id, attempt, version) = (task.id.clone(), task.attempt, task.firmware_version.clone());
            self.task = Some(Work { id, attempt, version, fate, began: now, is_flashed: false, ended: false });
        }
        if task.is_none() && self.task.as_ref().is_some_and(|work| !work.is_flashed && !work.ended) {
            self.task = None;
        }
        let work = self.task.as_mut()?;
        if work.fate == Fate::Silence || work.ended {
            return None;
        }
        let since: Duration = now.duration_since(work.began).try_into().unwrap_or_default();
        if since < PART {
            return Some(PART - since);
        }
        // What is begun again is flashed again: that it never comes to that is what is to be shown.
        if !matches!(work.fate, Fate::Fail(_)) && !work.is_flashed {
            work.is_flashed = true;
            self.flashed.push((work.id.clone(), work.attempt));
        }
        if since < 2 * PART {
            return Some(2 * PART - since);
        }
        work.ended = true;
        if work.fate == Fate::Succeed {
            self.version = work.version.clone();
        }
        None
    }

    fn progress(&self, now: Timestamp) -> Option<Value> {
        let work = self.task.as_ref().filter(|work| work.fate != Fate::Silence)?;
        let (stage, result, reason) = match (work.ended, work.fate) {
            (true, Fate::Succeed) => ("Confirming", "Succeeded", ""),
            (true, Fate::Fail(reason)) => ("Verifying", "Failed", reason),
            (true, Fate::RollBack(reason)) => ("RollingBack", "RolledBack", reason),
            _ if work.is_flashed => ("Installing", "", ""),
            _ => ("Downloading", "", ""),
        };
        let now = Timestamp::from_second(now.as_second()).unwrap();
        Some(json!({
            "taskId": work.id, "attempt": work.attempt, "stage": stage, "result": result, "reason": reason,
            "message": if reason.is_empty() { "" } else { "as the script says" }, "time": now.to_string(),
        }))
    }
}

fn connection(online: bool, now: Timestamp) -> Value {
    let (status, reason) = if online { ("True", "Seen") } else { ("False", "Silent") };
    let now = Timestamp::from_second(now.as_second()).unwrap();
    json!({"type": "Connected", "status": status, "reason": reason, "message": "", "lastTransitionTime": now.to_string()})
}

/// The hub: writes what vehicles report, until the run is over.
pub async fn hub(plane: &ControlPlane) {
    let garage = plane.outside::<Garage>();
    let manager =
        Manager::new(plane.client(), plane.clock(), plane.chance().fork("hub"), ManagerOptions::default()).unwrap();
    let vehicles: Informer<Vehicle> = manager.informers().all();
    let cache = vehicles.clone();
    let reconcile = move |context: Context, key: Key| {
        let (cache, garage) = (cache.clone(), garage.clone());
        async move {
            let Some(vehicle) = context.read(&cache, &key) else { return Ok(Action::done()) };
            let (report, wake) = garage.look(&vehicle, context.clock().wall());
            if let Some(report) = report {
                tell(context.client(), &vehicle.name_any(), report).await?;
            }
            Ok::<_, Error>(wake.map_or_else(Action::done, Action::requeue_after))
        }
    };
    let controller = Controller::builder("hub", manager.client().clone(), manager.clock(), &vehicles).build(reconcile);
    manager.add_controller(&[], controller).unwrap();
    let _ = manager.run(std::future::pending()).await;
}

/// Connects a vehicle, or cuts it off.
pub async fn connect(plane: &ControlPlane, name: &str, online: bool) {
    plane.outside::<Garage>().lock().cars.get_mut(name).unwrap().online = online;
    tell(&plane.client(), name, json!({"conditions": [connection(online, plane.clock().wall())]})).await.unwrap();
}

/// Writes the hub's part of a status: conditions by apply, so that those of others stay.
async fn tell(client: &Client, name: &str, mut report: Value) -> Result<(), kube::Error> {
    let api: Api<Vehicle> = Api::default_namespaced(client.clone());
    if let Some(conditions) = report.as_object_mut().and_then(|report| report.remove("conditions")) {
        let body = json!({
            "apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Vehicle", "metadata": {"name": name},
            "status": {"conditions": conditions},
        });
        api.patch_status(name, &PatchParams::apply("hub").force(), &Patch::Apply(body)).await?;
    }
    if report != json!({}) {
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": report}))).await?;
    }
    Ok(())
}

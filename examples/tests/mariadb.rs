//! The databases, with every fault at every point.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt, ResourceExt};
use serde_json::{Value, json};
use setpoint_examples::mariadb::{self, MariaDB};
use setpoint_runtime::Key;
use setpoint_runtime::config::Settings;
use setpoint_runtime::controller::{Action, Context, Controller, Error};
use setpoint_runtime::manager::{Manager, ManagerOptions};
use setpoint_runtime::retry;
use setpoint_testkit::{ControlPlane, Limits, Process, Scenario, State, exhaust, exhaust_with};

/// For stories that begin as others do, which are tried at every point.
fn some_points() -> Limits {
    Limits { points: 60, ..Limits::default() }
}

/// What a user does with a database, and what must be there in the end.
struct Story {
    name: &'static str,
    drive: for<'a> fn(&'a ControlPlane, Api<MariaDB>) -> BoxFuture<'a, ()>,
    outcome: fn(&State) -> Result<(), String>,
    /// Whether the user takes the password away.
    loses_secret: bool,
}

impl Scenario for Story {
    fn name(&self) -> &'static str {
        self.name
    }

    fn prepare<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(async {
            let definitions: Api<CustomResourceDefinition> = Api::all(plane.client());
            definitions.create(&PostParams::default(), &MariaDB::crd()).await.unwrap();
        })
    }

    fn process(&self, process: Process) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (stopped, chance) = (process.stopped(), process.chance.fork("passwords"));
            let manager = Manager::new(process.client, process.clock, process.chance, ManagerOptions::default());
            let manager = manager.unwrap();
            mariadb::add_to(&manager, &Settings::default(), move || format!("{:016x}", chance.bits())).unwrap();
            // A process that fails is started again by the kit.
            let _ = manager.run(stopped).await;
        })
    }

    fn world<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        Box::pin(play_stateful_sets(plane))
    }

    fn drive<'a>(&'a self, plane: &'a ControlPlane) -> BoxFuture<'a, ()> {
        (self.drive)(plane, Api::default_namespaced(plane.client()))
    }

    /// No server starts before there is a password.
    fn invariant(&self, state: &State) -> Result<(), String> {
        let sets = state.objects("apps", "statefulsets");
        match state.object("", "secrets", "default", "shop-root") {
            None if !sets.is_empty() && !self.loses_secret => Err("there are servers without a password".to_owned()),
            _ => Ok(()),
        }
    }

    fn outcome(&self, state: &State) -> Result<(), String> {
        let passwords = state.outside::<Passwords>();
        let seen = passwords.0.lock().unwrap().clone();
        if seen.len() > 1 {
            return Err(format!("the password changed: there were {}", seen.len()));
        }
        (self.outcome)(state)
    }

    /// Which password was drawn is chance.
    fn view(&self, mut object: Value) -> Option<Value> {
        if object["kind"] == "Secret" {
            object["data"]["password"] = "drawn".into();
        }
        Some(object)
    }
}

/// All passwords that servers were ever started with.
#[derive(Default)]
struct Passwords(Mutex<BTreeSet<Vec<u8>>>);

/// Plays the controller of StatefulSets: servers need ten seconds to start or to change, and each has a volume.
async fn play_stateful_sets(plane: &ControlPlane) {
    let chance = plane.chance().fork("stateful sets");
    let manager = Manager::new(plane.client(), plane.clock(), chance, ManagerOptions::default()).unwrap();
    let passwords = plane.outside::<Passwords>();
    let sets = manager.informers().all::<StatefulSet>();
    let cache = sets.clone();
    let play = move |context: Context, key: Key| {
        let (set, passwords) = (context.read(&cache, &key), passwords.clone());
        async move {
            match set {
                Some(set) if set.metadata.deletion_timestamp.is_some() => let_go(&context, &set).await,
                Some(set) => start(&context, &set, &passwords).await,
                None => Ok(Action::done()),
            }
        }
    };
    let controller = Controller::builder("stateful sets", manager.client().clone(), plane.clock(), &sets).build(play);
    manager.add_controller(&[], controller).unwrap();
    manager.run(std::future::pending()).await.unwrap();
}

/// The servers have stopped: what waited for them may go.
async fn let_go(context: &Context, set: &StatefulSet) -> Result<Action, Error> {
    let sets: Api<StatefulSet> = Api::namespaced(context.client().clone(), "default");
    let done = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    sets.patch(&set.name_any(), &PatchParams::default(), &done).await?;
    Ok(Action::done())
}

async fn start(context: &Context, set: &StatefulSet, passwords: &Passwords) -> Result<Action, Error> {
    if set.status.as_ref().and_then(|status| status.observed_generation) == set.metadata.generation {
        return Ok(Action::done());
    }
    // A world that plays may wait where a controller must not.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (client, name) = (context.client(), set.name_any());
    let secret = Api::<Secret>::namespaced(client.clone(), "default").get(&format!("{name}-root")).await?;
    passwords.0.lock().unwrap().insert(secret.data.unwrap_or_default()["password"].0.clone());
    let (claims, spec) = (Api::namespaced(client.clone(), "default"), set.spec.clone().unwrap_or_default());
    for number in 0..spec.replicas.unwrap_or(1) {
        let mut claim: PersistentVolumeClaim = spec.volume_claim_templates.clone().unwrap_or_default().remove(0);
        claim.metadata.name = Some(format!("data-{name}-{number}"));
        match claims.create(&PostParams::default(), &claim).await {
            Err(error) if retry::is_already_exists(&error) => {}
            other => drop(other?),
        }
    }
    let replicas = spec.replicas;
    let status = json!({"status": {
        "observedGeneration": set.metadata.generation, "replicas": replicas, "readyReplicas": replicas,
        "updatedReplicas": replicas, "availableReplicas": replicas,
    }});
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), "default");
    sets.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(Action::done())
}

async fn create(api: &Api<MariaDB>) {
    let database = json!({
        "apiVersion": "example.com/v1", "kind": "MariaDB", "metadata": {"name": "shop"},
        "spec": {"image": "mariadb:11.4", "replicas": 1, "storage": "1Gi"},
    });
    api.create(&PostParams::default(), &serde_json::from_value(database).unwrap()).await.unwrap();
}

#[test]
fn a_database_is_made_and_changed_and_keeps_its_password() {
    let story = Story {
        name: "a_database_is_made_and_changed_and_keeps_its_password",
        drive: |plane, api| {
            Box::pin(async move {
                create(&api).await;
                plane.settle().await.unwrap();
                let change =
                    json!({"spec": {"image": "mariadb:11.8", "replicas": 2, "config": {"max_connections": "9"}}});
                api.patch("shop", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
            })
        },
        outcome: |state| {
            let set = state.object("apps", "statefulsets", "default", "shop").unwrap_or_default();
            let database = state.object("example.com", "mariadbs", "default", "shop").unwrap_or_default();
            let image = &set["spec"]["template"]["spec"]["containers"][0]["image"];
            let is = json!([database["status"]["phase"], image, set["spec"]["replicas"]]);
            if is == json!(["Running", "mariadb:11.8", 2]) { Ok(()) } else { Err(is.to_string()) }
        },
        loses_secret: false,
    };
    exhaust(&story).assert();
}

#[test]
fn a_database_that_goes_takes_its_volumes_with_it() {
    let story = Story {
        name: "a_database_that_goes_takes_its_volumes_with_it",
        drive: |plane, api| {
            Box::pin(async move {
                create(&api).await;
                plane.settle().await.unwrap();
                api.delete("shop", &DeleteParams::default()).await.unwrap();
                plane.advance(Duration::from_secs(60)).await;
            })
        },
        outcome: |state| {
            for (group, plural) in [("example.com", "mariadbs"), ("apps", "statefulsets")] {
                if !state.objects(group, plural).is_empty() {
                    return Err(format!("there are still {plural}"));
                }
            }
            // Nobody is here to see that no pod uses them any more: they are marked, and wait for that.
            let volumes = state.objects("", "persistentvolumeclaims");
            if volumes.is_empty() || volumes.iter().any(|one| one["metadata"]["deletionTimestamp"].is_null()) {
                return Err(format!("the volumes stay: {volumes:?}"));
            }
            Ok(())
        },
        loses_secret: false,
    };
    exhaust(&story).assert();
}

#[test]
fn a_database_without_its_secret_has_failed_until_the_same_one_is_back() {
    let story = Story {
        name: "a_database_without_its_secret_has_failed_until_the_same_one_is_back",
        drive: |plane, api| {
            Box::pin(async move {
                create(&api).await;
                plane.settle().await.unwrap();
                let secrets: Api<Secret> = Api::default_namespaced(plane.client());
                let mut secret = secrets.get("shop-root").await.unwrap();
                secrets.delete("shop-root", &DeleteParams::default()).await.unwrap();
                plane.settle().await.unwrap();
                let status = api.get("shop").await.unwrap().status.unwrap_or_default();
                assert_eq!(status.phase.as_deref(), Some("Failed"));
                assert!(status.conditions.iter().any(|one| one.type_ == "Ready" && one.status == "False"));
                assert!(secrets.get_opt("shop-root").await.unwrap().is_none(), "a new password opens nothing");
                (secret.metadata.resource_version, secret.metadata.uid) = (None, None);
                secrets.create(&PostParams::default(), &secret).await.unwrap();
            })
        },
        outcome: |state| {
            let database = state.object("example.com", "mariadbs", "default", "shop").unwrap_or_default();
            match database["status"]["phase"].as_str() {
                Some("Running") => Ok(()),
                phase => Err(format!("the phase is {phase:?}")),
            }
        },
        loses_secret: true,
    };
    exhaust_with(&story, 0, some_points()).assert();
}

#[test]
fn a_database_that_goes_leaves_the_volumes_that_it_should_keep() {
    let story = Story {
        name: "a_database_that_goes_leaves_the_volumes_that_it_should_keep",
        drive: |plane, api| {
            Box::pin(async move {
                create(&api).await;
                let keep = Patch::Merge(json!({"spec": {"keepData": true}}));
                api.patch("shop", &PatchParams::default(), &keep).await.unwrap();
                plane.settle().await.unwrap();
                api.delete("shop", &DeleteParams::default()).await.unwrap();
                plane.advance(Duration::from_secs(60)).await;
            })
        },
        outcome: |state| {
            let volumes = state.objects("", "persistentvolumeclaims");
            if !state.objects("example.com", "mariadbs").is_empty() {
                return Err("the database is still there".to_owned());
            }
            if volumes.len() != 1 || !volumes[0]["metadata"]["deletionTimestamp"].is_null() {
                return Err(format!("the volumes go: {volumes:?}"));
            }
            Ok(())
        },
        loses_secret: false,
    };
    exhaust_with(&story, 0, some_points()).assert();
}

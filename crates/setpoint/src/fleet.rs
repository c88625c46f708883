//! `setpoint fleet`: how vehicles fare, why one is not there yet, and what a rollout would do.

use std::path::PathBuf;

use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use setpoint_cli::{reach, refusal, with_progress};
use setpoint_fleet::kinds::Rollout;
use setpoint_fleet::tell::Fleet;

use crate::arguments::{FleetArguments, FleetCommand};
use crate::failure::{Failure, say};
use crate::{access, alone, enrol, release, simulate};

/// Reads the fleet and tells what was asked.
pub async fn run(arguments: FleetArguments) -> Result<(), Failure> {
    let (namespace, now) = (&arguments.namespace, Timestamp::now());
    let kubeconfig = arguments.kubeconfig.clone().or_else(own_kubeconfig);
    let kubeconfig = kubeconfig.as_ref();
    let is_local = matches!(&arguments.command, FleetCommand::Keys(_) | FleetCommand::Sign(_));
    // In a cluster, the account of the pod leads to the server, and no file.
    if !is_local && (kubeconfig.is_some() || std::env::var_os("KUBERNETES_SERVICE_HOST").is_none()) {
        reach(kubeconfig).await?;
    }
    match &arguments.command {
        FleetCommand::Enrol(asked) => return enrol::run(kubeconfig, namespace, asked).await,
        FleetCommand::Token { vehicle, hours } => return access::token(kubeconfig, namespace, vehicle, *hours).await,
        FleetCommand::Revoke { vehicle, undo } => return access::revoke(kubeconfig, namespace, vehicle, *undo).await,
        FleetCommand::Promote { rollout } => return promote(kubeconfig, namespace, rollout).await,
        FleetCommand::Keys(asked) => return release::keys(asked),
        FleetCommand::Sign(asked) => return release::release(asked),
        FleetCommand::Simulate(asked) => return simulate::run(kubeconfig, namespace, asked).await,
        FleetCommand::Status { .. } | FleetCommand::Why { .. } | FleetCommand::Plan { .. } => {}
    }
    let client = alone::client(kubeconfig).await?;
    let fleet = with_progress("reading the fleet", Fleet::read(&client, namespace)).await.map_err(|error| {
        let failure = refusal("can't read the fleet", &error);
        match &error {
            kube::Error::Api(status) if status.code == 404 => {
                failure.hint("`setpoint up` serves its kinds, unless its controllers are off")
            }
            _ => failure,
        }
    })?;
    let text = match &arguments.command {
        FleetCommand::Status { form } => match form.print(|| fleet.figures()) {
            true => return Ok(()),
            false => fleet.overview(),
        },
        FleetCommand::Why { vehicle, form } => {
            let told = fleet.why(vehicle, now).ok_or_else(|| {
                Failure::new(format!("can't tell why {vehicle}"), format!("there is no such vehicle in {namespace}"))
                    .hint("`setpoint get vehicles -A` lists those that are there")
            })?;
            if form.print(|| json!({"kind": "Vehicle", "namespace": namespace, "name": vehicle, "why": told})) {
                return Ok(());
            }
            told
        }
        FleetCommand::Plan { rollout, form } => {
            let forecast = fleet.forecast(rollout, now).map_err(|why| {
                Failure::new(format!("can't plan {rollout}"), why)
                    .hint("`setpoint get rollouts -A` lists those that are there")
            })?;
            if form.print(|| forecast.value()) {
                return Ok(());
            }
            forecast.text()
        }
        FleetCommand::Enrol(_)
        | FleetCommand::Token { .. }
        | FleetCommand::Revoke { .. }
        | FleetCommand::Promote { .. }
        | FleetCommand::Keys(_)
        | FleetCommand::Sign(_)
        | FleetCommand::Simulate(_) => return Ok(()),
    };
    say(text.trim_end());
    Ok(())
}

/// Where `setpoint up` writes its kubeconfig, if nobody has named another: every other command finds it there, too.
fn own_kubeconfig() -> Option<PathBuf> {
    let is_elsewhere = |name: &str| std::env::var_os(name).is_some();
    let usual = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    if is_elsewhere("KUBECONFIG") || is_elsewhere("KUBERNETES_SERVICE_HOST") || usual.is_some_and(|file| file.exists())
    {
        return None;
    }
    setpoint_cli::data_folder().map(|folder| folder.join("admin.kubeconfig")).filter(|file| file.exists())
}

/// Says in the spec of a rollout that the step which it waits at is passed. What was read has to be what is there: a rollout that went on
/// meanwhile is not promoted twice.
async fn promote(kubeconfig: Option<&PathBuf>, namespace: &str, name: &str) -> Result<(), Failure> {
    let unable = |error: kube::Error| refusal(format!("can't promote {namespace}/{name}"), &error);
    let api: Api<Rollout> = Api::namespaced(alone::client(kubeconfig).await?, namespace);
    let rollout = api.get(name).await.map_err(unable)?;
    let status = rollout.status.unwrap_or_default();
    let (field, said) = match status.phase.as_deref() {
        Some("Soaking") => {
            ("promotedStep", format!("{name} goes on from step {} without the rest of its soak", status.step))
        }
        Some("AwaitingApproval") => ("approvedStep", format!("{name} goes on to step {}", status.step)),
        phase => {
            let phase = phase.unwrap_or("Pending");
            let why = format!("it waits for nobody: it is {phase}");
            return Err(Failure::new(format!("can't promote {namespace}/{name}"), why)
                .hint(format!("`setpoint get rollouts {name} -o yaml` says what it waits for")));
        }
    };
    let version = rollout.metadata.resource_version;
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {field: status.step}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map_err(unable)?;
    say(&said);
    Ok(())
}

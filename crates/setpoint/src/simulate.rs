//! `setpoint fleet simulate`: any number of vehicles in this process, behind one gateway.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use setpoint_fleet::certificate;
use setpoint_fleet::simulate::{Connection, Fleet, Options, Tally, make_vehicles, over_socket};
use setpoint_fleet_protocol::Party;
use setpoint_runtime::clock::Clock;

use crate::arguments::SimulateArguments;
use crate::failure::{Failure, say};
use crate::signals::Signals;
use crate::{alone, hub, service};

/// Makes the vehicles, connects them, and tells how they are doing until it is stopped.
pub async fn run(kubeconfig: Option<&PathBuf>, namespace: &str, asked: &SimulateArguments) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let options = Options {
        namespace: namespace.to_owned(),
        prefix: asked.prefix.clone(),
        count: asked.vehicles,
        hardware_id: asked.hardware.clone(),
        initial_version: asked.initial_version.clone(),
        speed: asked.speed,
        faults: asked.faults.clone(),
        seed: asked.seed.unwrap_or_else(service::seed),
    };
    let config = alone::config(kubeconfig).await?;
    let authority = hub::authority_of(&config)?;
    let client = kube::Client::try_from(config).map_err(|error| Failure::new("can't make a client", error))?;
    let url = asked.hub.clone().or_else(|| hub::url_beside(kubeconfig)).ok_or_else(|| {
        Failure::usage("can't find a hub", "there is no hub.url beside the kubeconfig")
            .hint("say where it is with `--hub`")
    })?;
    let address = url.trim_start_matches("https://").trim_end_matches('/').to_owned();
    let gateway = Party::Gateway { namespace: namespace.to_owned(), name: asked.prefix.clone() };
    let issued = certificate::of_party(&client, &gateway)
        .await
        .map_err(|error| Failure::new("can't get a certificate for the gateway", error))?;
    say(&format!("{} vehicles, seed {}, hub {address}", options.count, options.seed));
    let made = make_vehicles(&client, &options, &asked.prefix);
    made.await.map_err(|error| Failure::new("can't make the vehicles", error))?;
    let clock = Clock::starting_at(Timestamp::now());
    let mut fleet = Fleet::new(options, clock.wall());
    let connection = Connection { hub: address, issued, authority };
    let started = clock.now();
    let mut last = None;
    let told = |tally: &Tally, is_connected: bool| {
        // What hasn't changed needs no line.
        if last.as_ref() != Some(&(tally.clone(), is_connected)) {
            say(&line(tally, is_connected, clock.now().saturating_duration_since(started)));
            last = Some((tally.clone(), is_connected));
        }
    };
    tokio::select! {
        () = over_socket(&mut fleet, &connection, clock, told) => Ok(()),
        _ = signals.next() => Ok(()),
    }
}

fn line(tally: &Tally, is_connected: bool, since: Duration) -> String {
    let versions: Vec<String> = tally.versions.iter().map(|(version, count)| format!("{version}: {count}")).collect();
    let stages: Vec<String> = tally.stages.iter().map(|(stage, count)| format!("{stage} {count}")).collect();
    format!(
        "{:>5} s  {}  {}  [{}]  failed {}  offline {}  flashes {}",
        since.as_secs(),
        if is_connected { "connected" } else { "no hub   " },
        versions.join(", "),
        stages.join(", "),
        tally.failed,
        tally.offline,
        tally.flashes,
    )
}

//! `setpoint fleet simulate`: any number of vehicles in this process, behind one gateway or each with a connection of its own.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use setpoint_fleet::certificate;
use setpoint_fleet::simulate::{
    Connection, Fleet, Options, Papers, Tally, enrol_vehicles, make_vehicles, over_socket, over_sockets,
};
use setpoint_fleet_protocol::Party;
use setpoint_runtime::clock::Clock;

use crate::arguments::SimulateArguments;
use crate::failure::{Failure, say};
use crate::signals::Signals;
use crate::{alone, files, hub, service};

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
    let client = Client::try_from(config).map_err(|error| Failure::new("can't make a client", error))?;
    let hubs = hubs(&client, kubeconfig, asked).await?;
    say(&format!("{} vehicles, seed {}, hub {}", options.count, options.seed, hubs.join(", ")));
    let simulation = Simulation { client, options, hubs, authority };
    tokio::select! {
        ended = simulation.run(asked) => ended,
        _ = signals.next() => Ok(()),
    }
}

/// Where hubs are, as `HOST:PORT`.
async fn hubs(
    client: &Client,
    kubeconfig: Option<&PathBuf>,
    asked: &SimulateArguments,
) -> Result<Vec<String>, Failure> {
    let mut urls = hub::find(client, kubeconfig, &asked.hub).await?;
    if asked.hub.is_empty() && !asked.sockets {
        urls.truncate(1);
    }
    if urls.len() > 1 && !asked.sockets {
        return Err(Failure::usage("can't use more than one hub", "all vehicles are behind one gateway")
            .hint("with `--sockets` each has a connection of its own"));
    }
    Ok(urls.iter().map(|url| url.trim_start_matches("https://").trim_end_matches('/').to_owned()).collect())
}

/// What a run needs.
struct Simulation {
    client: Client,
    options: Options,
    hubs: Vec<String>,
    authority: String,
}

impl Simulation {
    async fn run(self, asked: &SimulateArguments) -> Result<(), Failure> {
        let clock = Clock::starting_at(Timestamp::now());
        let started = clock.now();
        let mut last = None;
        let told = |tally: &Tally| {
            // What hasn't changed needs no line.
            if last.as_ref() != Some(tally) {
                say(&line(tally, clock.now().saturating_duration_since(started)));
                last = Some(tally.clone());
            }
        };
        if asked.sockets {
            let papers = self.enrol().await?;
            let mut fleet = Fleet::new(self.options, clock.wall());
            over_sockets(&mut fleet, &papers, &self.hubs, clock, told).await;
        } else {
            let connection = self.connection(&asked.prefix).await?;
            let mut fleet = Fleet::new(self.options, clock.wall());
            over_socket(&mut fleet, &connection, clock, told).await;
        }
        Ok(())
    }

    /// A certificate for each vehicle.
    async fn enrol(&self) -> Result<Vec<Papers>, Failure> {
        let (count, room) = (self.options.count, files::room());
        if count > room {
            let why = format!("this process may have {room} connections");
            return Err(Failure::usage(format!("can't connect {count} vehicles"), why)
                .hint("raise the limit of open files (`ulimit -Hn`), or simulate some of them in another process"));
        }
        let unable = |error: &dyn std::fmt::Display| Failure::new("can't enrol the vehicles", error.to_string());
        let start = std::time::Instant::now();
        let issued = enrol_vehicles(&self.client, &self.options, &self.hubs, &self.authority).await;
        let issued = issued.map_err(|error| unable(&error))?;
        say(&format!("{count} vehicles enrolled in {:.1} s", start.elapsed().as_secs_f64()));
        Papers::of(&issued, &self.authority).map_err(|error| unable(&error))
    }

    /// The connection of the gateway that speaks for all.
    async fn connection(&self, gateway: &str) -> Result<Connection, Failure> {
        let party = Party::Gateway { namespace: self.options.namespace.clone(), name: gateway.to_owned() };
        let issued = certificate::of_party(&self.client, &party)
            .await
            .map_err(|error| Failure::new("can't get a certificate for the gateway", error))?;
        make_vehicles(&self.client, &self.options, gateway)
            .await
            .map_err(|error| Failure::new("can't make the vehicles", error))?;
        Ok(Connection { hub: self.hubs[0].clone(), issued, authority: self.authority.clone() })
    }
}

fn line(tally: &Tally, since: Duration) -> String {
    let versions: Vec<String> = tally.versions.iter().map(|(version, count)| format!("{version}: {count}")).collect();
    let stages: Vec<String> = tally.stages.iter().map(|(stage, count)| format!("{stage} {count}")).collect();
    format!(
        "{:>5} s  linked {}  {}  [{}]  failed {}  offline {}  flashes {}",
        since.as_secs(),
        tally.linked,
        versions.join(", "),
        stages.join(", "),
        tally.failed,
        tally.offline,
        tally.flashes,
    )
}

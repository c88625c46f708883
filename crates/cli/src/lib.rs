//! Commands for people: what kubectl does every day, and what it lacks.
//!
//! Invariants
//! - Everything is read and written through the public API, with the rights of whoever asks; only `doctor` looks at this machine.
//! - The answer goes to standard output, everything else to standard error; what a pipe gets has no colours and is never cut.
//! - `get`, `apply`, `delete`, `wait` and `events` take kubectl's flags, print what it prints and end with its exit codes.
//!
//! Start at [`Command`], then `get.rs`; the sentences of `why` are made in `why/cause.rs`, from facts alone.

pub mod failure;

mod apply;
mod beside;
mod connection;
mod delete;
mod discovery;
mod doctor;
mod dry_run;
mod events;
mod family;
mod figures;
mod get;
mod go;
mod health;
mod json_path;
mod manifest;
mod observe;
mod output;
mod request;
mod selection;
mod slip;
mod span;
mod status;
mod tab;
mod table;
mod terminal;
mod timeline;
mod top;
mod tree;
mod wait;
mod why;
mod yaml;

use clap::Subcommand;

use failure::{FAILED, Failure};

pub use figures::Figures;
pub use slip::nearest;
pub use terminal::with_progress;

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Show objects as a table, as JSON or YAML, or through a template
    #[command(after_help = "\
Examples:
  setpoint get pods                          the pods of the namespace
  setpoint get pods -A -o wide               of all namespaces, with more columns
  setpoint get deploy/web -o yaml            one object
  setpoint get pods -l app=web -w            and every change as it comes
  setpoint get pods -o jsonpath='{.items[*].metadata.name}'")]
    Get(get::GetArguments),
    /// Make objects as files say
    #[command(after_help = "\
Examples:
  setpoint apply -f web.yaml                 created, configured or unchanged
  setpoint apply -f manifests/ -R            all files below a directory
  setpoint apply -f web.yaml --dry-run=server
  cat web.yaml | setpoint apply -f -")]
    Apply(apply::ApplyArguments),
    /// Delete objects, and wait until they are gone
    #[command(after_help = "\
Examples:
  setpoint delete pod web-0
  setpoint delete -f web.yaml
  setpoint delete pods -l app=web --wait=false
  setpoint delete pod web-0 --now")]
    Delete(delete::DeleteArguments),
    /// Show what happened, oldest first
    #[command(after_help = "\
Examples:
  setpoint events                            of the namespace
  setpoint events --for deploy/web
  setpoint events -A --types=Warning")]
    Events(events::EventsArguments),
    /// Wait until a condition holds, or an object is there or gone
    #[command(after_help = "\
Examples:
  setpoint wait deploy/web --for=condition=Available
  setpoint wait pod/web-0 --for=delete --timeout=60s
  setpoint wait deploy/web --for=jsonpath='{.status.readyReplicas}'=3")]
    Wait(wait::WaitArguments),
    /// Tell in one sentence why an object is not as it should be
    #[command(after_help = "\
Examples:
  setpoint why deploy/web
  setpoint why pod web-0
  setpoint why vehicle/car-7")]
    Why(why::WhyArguments),
    /// Show an object and all that it owns, each with how it fares
    #[command(after_help = "Examples:\n  setpoint tree deploy/web")]
    Tree(tree::TreeArguments),
    /// Show writes, conditions, events and runs of controllers around an object, in the order of time
    #[command(after_help = "Examples:\n  setpoint timeline deploy/web")]
    Timeline(timeline::TimelineArguments),
    /// Watch queues, rates and slow objects of the controllers
    #[command(after_help = "Examples:\n  setpoint top\n  setpoint top --once")]
    Top(top::TopArguments),
    /// Tell whether a control plane is well, and what needs attention
    #[command(after_help = "Examples:\n  setpoint status")]
    Status(status::StatusArguments),
    /// Check what is between here and a working control plane
    #[command(after_help = "Examples:\n  setpoint doctor")]
    Doctor(doctor::DoctorArguments),
}

/// Names of the commands that kubectl has too: wrong usage ends as it does there.
pub const SHARED_WITH_KUBECTL: [&str; 5] = ["get", "apply", "delete", "events", "wait"];

/// Runs a command.
pub async fn run(command: Command) -> Result<(), Failure> {
    let outcome = match &command {
        Command::Get(arguments) => get::run(arguments).await,
        Command::Apply(arguments) => apply::run(arguments).await,
        Command::Delete(arguments) => delete::run(arguments).await,
        Command::Events(arguments) => events::run(arguments).await,
        Command::Wait(arguments) => wait::run(arguments).await,
        Command::Why(arguments) => return why::run(arguments).await,
        Command::Tree(arguments) => return tree::run(arguments).await,
        Command::Timeline(arguments) => return timeline::run(arguments).await,
        Command::Top(arguments) => return top::run(arguments).await,
        Command::Status(arguments) => return status::run(arguments).await,
        Command::Doctor(arguments) => return doctor::run(arguments).await,
    };
    // kubectl ends with 1 whatever is wrong, and scripts know that.
    outcome.map_err(|failure| failure.with_code(FAILED))
}

//! Commands for people: what kubectl does every day, and what it lacks.
//!
//! Invariants
//! - Everything is read and written through the public API, with the rights of whoever asks; only `doctor` looks at this machine.
//! - The answer goes to standard output, everything else to standard error; what a pipe gets has no colours and is never cut.
//! - `get`, `apply`, `delete`, `wait` and `events` take kubectl's flags, print what it prints and end with its exit codes.
//!
//! Start at [`Command`], then `get.rs`; the sentences of `why` are made in `why/cause.rs`, from facts alone.

pub mod failure;

mod absent;
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
mod misnamed;
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
mod who_can;
mod why;
mod yaml;

use clap::Subcommand;

use failure::Failure;

pub use connection::{data_folder, reach};
pub use figures::Figures;
pub use output::FormArguments;
pub use request::refusal;
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
    #[command(after_help = "Examples:\n  setpoint tree deploy/web\n  setpoint tree deploy/web -o wide")]
    Tree(tree::TreeArguments),
    /// Show writes, conditions, events and runs of controllers around an object, in the order of time
    #[command(after_help = "Examples:\n  setpoint timeline deploy/web")]
    Timeline(timeline::TimelineArguments),
    /// Tell who may do something, and through which binding and role
    #[command(after_help = "\
Examples:
  setpoint who-can delete pods               in the namespace
  setpoint who-can delete pods -A            in any
  setpoint who-can update deploy/web
  setpoint who-can get pods --subresource=log
  setpoint who-can get /metrics

Members of `system:masters` may do everything. What nodes and vehicles may do for being what they are is not told.")]
    WhoCan(who_can::WhoCanArguments),
    /// Watch queues, rates and slow objects of the controllers
    #[command(after_help = "Examples:\n  setpoint top\n  setpoint top --once\n  setpoint top -o json")]
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
    let outcome = tokio::select! {
        outcome = perform(&command) => outcome,
        () = interrupted() => Err(command.cut_short()),
    };
    if let (Err(failure), Some(form)) = (&outcome, command.form())
        && !failure.is_answered()
    {
        form.print(|| failure.status());
    }
    match command.is_shared_with_kubectl() {
        // kubectl ends with 1 whatever is wrong, and scripts know that.
        true => outcome.map_err(|failure| failure.as_kubectl_ends()),
        false => outcome,
    }
}

async fn perform(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Get(arguments) => get::run(arguments).await,
        Command::Apply(arguments) => apply::run(arguments).await,
        Command::Delete(arguments) => delete::run(arguments).await,
        Command::Events(arguments) => events::run(arguments).await,
        Command::Wait(arguments) => wait::run(arguments).await,
        Command::Why(arguments) => why::run(arguments).await,
        Command::Tree(arguments) => tree::run(arguments).await,
        Command::Timeline(arguments) => timeline::run(arguments).await,
        Command::WhoCan(arguments) => who_can::run(arguments).await,
        Command::Top(arguments) => top::run(arguments).await,
        Command::Status(arguments) => status::run(arguments).await,
        Command::Doctor(arguments) => doctor::run(arguments).await,
    }
}

/// Ctrl-C. What is shown meanwhile is wiped before anything is said of it.
async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        // It can't be listened for: then it ends the process as it always does.
        std::future::pending().await
    }
}

impl Command {
    fn is_shared_with_kubectl(&self) -> bool {
        match self {
            Command::Get(_) | Command::Apply(_) | Command::Delete(_) | Command::Events(_) | Command::Wait(_) => true,
            Command::Why(_) | Command::Tree(_) | Command::Timeline(_) | Command::WhoCan(_) => false,
            Command::Top(_) | Command::Status(_) | Command::Doctor(_) => false,
        }
    }

    /// The form of the answer that was asked for, of the commands that kubectl doesn't have.
    fn form(&self) -> Option<FormArguments> {
        match self {
            Command::Why(arguments) => Some(arguments.form),
            Command::Tree(arguments) => Some(arguments.form()),
            Command::Timeline(arguments) => Some(arguments.form),
            Command::WhoCan(arguments) => Some(arguments.form),
            Command::Status(arguments) => Some(arguments.form),
            Command::Doctor(arguments) => Some(arguments.form),
            Command::Top(arguments) => Some(arguments.form),
            Command::Get(_) | Command::Apply(_) | Command::Delete(_) | Command::Events(_) | Command::Wait(_) => None,
        }
    }

    /// What is told of a command that was ended before its end: the state in which it left things.
    fn cut_short(&self) -> Failure {
        match self {
            Command::Delete(_) => {
                Failure::interrupted("what is told of above is being deleted, and nobody waits for it any more")
                    .hint("`setpoint wait KIND/NAME --for=delete` waits again")
            }
            Command::Apply(_) => Failure::interrupted("what is told of above is applied, and the rest may not be")
                .hint("run it again: what is applied already stays as it is"),
            // They end no other way, and change nothing.
            Command::Get(_) | Command::Events(_) | Command::Top(_) => Failure::interrupted(""),
            Command::Wait(_) | Command::Why(_) | Command::Tree(_) | Command::Timeline(_) | Command::WhoCan(_) => {
                Failure::interrupted("nothing was changed")
            }
            Command::Status(_) | Command::Doctor(_) => Failure::interrupted("nothing was changed"),
        }
    }
}

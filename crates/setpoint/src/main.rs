//! The control plane in one binary: `setpoint up`, and the commands around it.

mod access;
mod alone;
mod arguments;
mod audit;
mod beside;
mod certificates;
mod enrol;
mod files;
mod fleet;
mod hardening;
mod hub;
mod kubectl;
mod logging;
mod maintenance;
mod manual;
mod migrate;
mod nearby;
mod parts;
mod release;
mod renewal;
mod sealing;
mod server;
mod service;
mod signals;
mod simulate;
mod storage;

use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use arguments::{Arguments, Command};
use beside::Beside;
use failure::Failure;
use setpoint_cli::failure;

/// Requests are many short-lived buffers of all sizes, made on one thread and dropped on another: the pattern that the system's
/// allocator is slow at. This one hands out first what was dropped last, so it is in the processor's cache still.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long disk work that nobody waits for any more may hold up the exit.
const BLOCKING_WORK_MAX: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return misused(&error),
    };
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_silent() {
                eprintln!("{failure}");
            }
            failure.code()
        }
    }
}

/// Prints what is wrong with the command line, or the help that was asked for.
fn misused(error: &clap::Error) -> ExitCode {
    let command = std::env::args().nth(1).unwrap_or_default();
    if let Some(failure) = stray(error, &command) {
        failure::note(&failure.to_string());
    } else if error.use_stderr() {
        let text = error.render().to_string();
        // What to do next is said as in every other failure.
        let text = text.replace("\nFor more information, try '--help'.\n", "");
        failure::note(&format!("{}\n  hint: {}", text.trim_end(), advice(error, &command)));
    } else {
        // Where nobody can read it, nothing is lost.
        let _ = error.print();
    }
    match error.exit_code() {
        // Scripts that know kubectl know 1 for everything.
        2 if setpoint_cli::SHARED_WITH_KUBECTL.contains(&command.as_str()) => ExitCode::from(failure::FAILED),
        code => ExitCode::from(u8::try_from(code).unwrap_or(failure::FAILED)),
    }
}

/// A word that a command has no place for, where it is known what it was meant as: said as kubectl says it.
fn stray(error: &clap::Error, command: &str) -> Option<Failure> {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return None };
    if error.kind() != ErrorKind::UnknownArgument || word.starts_with('-') {
        return None;
    }
    let said = |hint: String| Some(Failure::error(format!("Unexpected args: [{word}]")).hint(hint));
    match command {
        "apply" => said(format!("files are named with `-f`: `setpoint apply -f {word}`")),
        "events" if word.contains('/') => {
            said(format!("the object is named with `--for`: `setpoint events --for {word}`"))
        }
        "top" => said(format!("this one is of controllers; what pods and nodes use: `kubectl top {word}`")),
        _ => None,
    }
}

/// Words for what `up` does.
const STARTS: [&str; 3] = ["start", "serve", "launch"];

/// What to do about a wrong command line.
fn advice(error: &clap::Error, command: &str) -> String {
    let known = Arguments::command();
    let names = || known.get_subcommands().filter(|one| !one.is_hide_set()).map(clap::Command::get_name);
    if names().any(|name| name == command) {
        return format!("`setpoint {command} --help` has the flags and examples");
    }
    let is_unknown = error.kind() == ErrorKind::InvalidSubcommand;
    if is_unknown && kubectl::has(command) {
        return kubectl::instead();
    }
    if is_unknown && STARTS.contains(&command) {
        return "`setpoint up` starts a control plane".to_owned();
    }
    if let Some(flag) = command.strip_prefix("--")
        && let Some(up) = known.find_subcommand("up")
        && up.get_arguments().any(|one| one.get_long() == flag.split('=').next())
    {
        return format!("`up` has it: `setpoint up {}`", kubectl::quoted(std::env::args().skip(1)));
    }
    match setpoint_cli::nearest(command, names()) {
        Some(near) if is_unknown => format!("did you mean `setpoint {near}`?"),
        _ => "`setpoint --help` lists the commands".to_owned(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    if let Command::Version { form } = command {
        let (own, kubernetes) = (env!("CARGO_PKG_VERSION"), service::KUBERNETES_VERSION);
        if !form.print(|| serde_json::json!({"setpoint": own, "kubernetes": kubernetes})) {
            failure::say(&format!("setpoint {own}\nKubernetes {kubernetes}"));
        }
        return Ok(());
    }
    if let Command::Completion { shell } = command {
        manual::completion(shell);
        return Ok(());
    }
    if let Command::Manual { folder } = &command {
        return manual::write(folder);
    }
    // Threads that are started from here on are bound by it too.
    if command.is_lasting() {
        hardening::harden()?;
    }
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .map_err(|error| Failure::of_file("can't start", &error))?;
    let form = command.form();
    let outcome = runtime.block_on(perform(command));
    if let (Err(failure), Some(form)) = (&outcome, form) {
        form.print(|| failure.status());
    }
    runtime.shutdown_timeout(BLOCKING_WORK_MAX);
    outcome
}

async fn perform(command: Command) -> Result<(), Failure> {
    match command {
        Command::Up(arguments) => server::run(&arguments.server, Some(Beside::new(&arguments)?)).await,
        Command::Server(arguments) => server::run(&arguments, None).await,
        Command::Controllers(arguments) => alone::controllers(arguments).await,
        Command::Scheduler(arguments) => alone::scheduler(arguments).await,
        Command::Node(arguments) => alone::node(arguments).await,
        Command::Fleet(arguments) => fleet::run(arguments).await,
        Command::Hub(arguments) => hub::run(arguments).await,
        Command::RotateKeys { data, store, seal, drop_old } => sealing::rotate(&data, &store, &seal, drop_old).await,
        Command::Certs { command } => certificates::run(&command).await,
        Command::Verify { data, store } => maintenance::verify(&data, &store).await,
        Command::Migrate(arguments) => migrate::run(&arguments).await,
        Command::Backup { data, store, seal, file, form } => {
            maintenance::backup(&data, &store, &seal, &file, form).await
        }
        Command::Restore { data, store, seal, file } => maintenance::restore(&data, &store, &seal, &file).await,
        Command::People(command) => setpoint_cli::run(command).await,
        Command::Completion { .. } | Command::Manual { .. } | Command::Version { .. } => Ok(()),
    }
}

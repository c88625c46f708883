//! Logs to stderr: what the operator should know, at the level that was asked for.

use std::io::IsTerminal;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

use crate::arguments::LogLevel;
use crate::failure::Failure;

const VARIABLE: &str = "SETPOINT_LOG";

/// Starts logging at the level of the flag, else of `SETPOINT_LOG`, else `info`.
pub fn start(flag: Option<LogLevel>) -> Result<(), Failure> {
    let level = match flag {
        Some(level) => filter(level),
        None => from_environment()?,
    };
    // Libraries log each frame of each connection: below warnings they are for their own authors, at `trace` only.
    let others = if level == LevelFilter::TRACE { level } else { level.min(LevelFilter::WARN) };
    let targets = Targets::new().with_default(others).with_target("setpoint", level);
    let colored = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colored);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines).with(targets))
        .map_err(|error| Failure::new("can't start logging", error))
}

fn from_environment() -> Result<LevelFilter, Failure> {
    let Some(value) = std::env::var_os(VARIABLE) else { return Ok(LevelFilter::INFO) };
    let text = value.to_string_lossy();
    clap::ValueEnum::from_str(&text, true).map(filter).map_err(|_: String| {
        Failure::usage(format!("can't log at the level of {VARIABLE}"), format!("there is no level {text:?}"))
            .hint("the levels are error, warn, info, debug and trace")
    })
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

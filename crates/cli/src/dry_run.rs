//! `--dry-run`: what would be done, by our own reckoning or by the server's.

use crate::failure::Failure;
use crate::request::Ask;

/// Who reckons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// It is done.
    None,
    /// Nothing is sent.
    Client,
    /// Everything is sent, nothing is kept.
    Server,
}

impl DryRun {
    /// Reads the value of the flag.
    pub fn parse(text: &str) -> Result<DryRun, Failure> {
        match text {
            "none" => Ok(DryRun::None),
            "client" => Ok(DryRun::Client),
            "server" => Ok(DryRun::Server),
            other => Err(Failure::error(format!(
                "Invalid dry-run value ({other}). Must be \"none\", \"server\", or \"client\"."
            ))
            .hint("`--dry-run=server` checks everything and keeps nothing")),
        }
    }

    /// What follows the words that tell what was done.
    pub fn suffix(self) -> &'static str {
        match self {
            DryRun::None => "",
            DryRun::Client => " (dry run)",
            DryRun::Server => " (server dry run)",
        }
    }

    /// Tells the server.
    pub fn on(self, ask: Ask<'_>) -> Ask<'_> {
        if self == DryRun::Server { ask.with("dryRun", "All") } else { ask }
    }
}

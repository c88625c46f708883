//! Completions and manual pages, made from the definition of the command line.

use std::path::Path;

use clap::{Command, CommandFactory};

use crate::arguments::Arguments;
use crate::failure::{Failure, print, say};

/// Prints the completions of a shell.
pub fn completion(shell: clap_complete::Shell) {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "setpoint", &mut text);
    print(&String::from_utf8_lossy(&text));
}

/// Writes one page for the program and one for each of its commands.
pub fn write(folder: &Path) -> Result<(), Failure> {
    let mut command = Arguments::command();
    command.build();
    let failed = |error: std::io::Error| Failure::of_file(format!("can't write to {}", folder.display()), &error);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let pages = pages(&command, "setpoint").map_err(failed)?;
    for (name, page) in &pages {
        std::fs::write(folder.join(format!("{name}.1")), page).map_err(failed)?;
    }
    say(&format!("wrote {} pages to {}", pages.len(), folder.display()));
    Ok(())
}

fn pages(command: &Command, name: &str) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name.to_uppercase()).render(&mut page)?;
    let mut all = vec![(name.to_owned(), page)];
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set() && inner.get_name() != "help") {
        all.extend(pages(inner, &format!("{name}-{}", inner.get_name()))?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_an_explanation() {
        let mut command = Arguments::command();
        command.build();
        let pages = pages(&command, "setpoint").unwrap();
        for name in ["setpoint", "setpoint-up", "setpoint-get", "setpoint-why", "setpoint-fleet-status"] {
            assert!(pages.iter().any(|(page, _)| page == name), "no page {name}");
        }
        let silent: Vec<_> =
            command.get_subcommands().filter(|inner| inner.get_about().is_none()).map(Command::get_name).collect();
        assert_eq!(silent, Vec::<&str>::new());
    }
}

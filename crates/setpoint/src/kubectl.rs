//! What kubectl does and we don't: whoever asks us for it is told how to ask kubectl.

/// Its commands that have no twin here.
const COMMANDS: [&str; 34] = [
    "annotate",
    "api-resources",
    "api-versions",
    "attach",
    "auth",
    "autoscale",
    "certificate",
    "cluster-info",
    "config",
    "cordon",
    "cp",
    "create",
    "debug",
    "describe",
    "diff",
    "drain",
    "edit",
    "exec",
    "explain",
    "expose",
    "kustomize",
    "label",
    "logs",
    "patch",
    "port-forward",
    "proxy",
    "replace",
    "rollout",
    "run",
    "scale",
    "set",
    "taint",
    "uncordon",
    "plugin",
];

/// Whether it has this command, and we have none.
pub fn has(command: &str) -> bool {
    COMMANDS.contains(&command)
}

/// The same command line for kubectl, with the kubeconfig that our own commands would take.
pub fn instead() -> String {
    let own = setpoint_cli::data_folder().map(|folder| folder.join("admin.kubeconfig"));
    let words = std::env::args().skip(1);
    line(words, own.filter(|file| std::env::var_os("KUBECONFIG").is_none() && file.exists()))
}

/// Words as one types them into a shell.
pub fn quoted(words: impl Iterator<Item = String>) -> String {
    let plain =
        |word: &String| word.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_./=:,@%+".contains(letter));
    let quoted = |word: String| if plain(&word) { word } else { format!("'{}'", word.replace('\'', "'\\''")) };
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

fn line(words: impl Iterator<Item = String>, kubeconfig: Option<std::path::PathBuf>) -> String {
    let flag = kubeconfig.map_or(String::new(), |file| format!(" --kubeconfig={}", file.display()));
    format!("kubectl has it, and talks to this control plane: `kubectl{flag} {}`", quoted(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_can_be_run_as_it_is() {
        let words = |line: &str| line.split('|').map(str::to_owned).collect::<Vec<_>>().into_iter();
        assert!(line(words("logs|web-0"), None).ends_with("`kubectl logs web-0`"));
        assert!(
            line(words("scale|deploy/web"), Some("/a".into())).ends_with("`kubectl --kubeconfig=/a scale deploy/web`")
        );
        assert!(line(words("exec|a|--|echo it's"), None).ends_with(r"`kubectl exec a -- 'echo it'\''s'`"));
    }

    #[test]
    fn what_we_have_ourselves_is_not_handed_on() {
        use clap::CommandFactory;
        let own = crate::arguments::Arguments::command();
        let taken: Vec<&str> = own.get_subcommands().map(clap::Command::get_name).filter(|name| has(name)).collect();
        assert_eq!(taken, Vec::<&str>::new());
    }
}

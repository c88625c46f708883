//! Fenced blocks of a page, and what the comment right above one says of it.

/// A fenced block.
pub struct Block {
    /// The line of its first line of text, from 1.
    pub line: usize,
    /// What stands behind its opening fence.
    pub language: String,
    /// What is in it.
    pub text: String,
    /// What is said of it.
    pub mark: Mark,
}

/// What the comment above a block says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// Nothing.
    #[default]
    None,
    /// `not run: WHY`: it can't be run here.
    NotRun,
    /// `beside: COMMAND`: this program has to run.
    Beside(String),
    /// `stopped`: the control plane must not run.
    Stopped,
    /// `stopped, etcd at ADDRESS`: nor that, and an empty etcd is there.
    Etcd(String),
    /// `file: PATH`: it is this file, whole.
    File(String),
    /// `from: PATH`: it is a part of this file.
    From(String),
}

impl Mark {
    fn parse(line: &str) -> Mark {
        let Some(said) = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")) else {
            return Mark::None;
        };
        let (word, rest) = said.split_once(": ").unwrap_or((said, ""));
        match (word, said.strip_prefix("stopped, etcd at ")) {
            (_, Some(address)) => Mark::Etcd(address.to_owned()),
            ("not run", _) => Mark::NotRun,
            ("beside", _) => Mark::Beside(rest.to_owned()),
            ("stopped", _) => Mark::Stopped,
            ("file", _) => Mark::File(rest.to_owned()),
            ("from", _) => Mark::From(rest.to_owned()),
            _ => Mark::None,
        }
    }
}

/// All blocks of a page.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut above = "";
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                let (language, mark) = (language.to_owned(), Mark::parse(above));
                open = Some(Block { line: number + 2, language, text: String::new(), mark });
            }
            (Some(_), Some(_)) => {
                blocks.extend(open.take());
                above = "";
            }
            (Some(block), None) => block.text += &format!("{line}\n"),
            (None, None) if !line.trim().is_empty() => above = line,
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    blocks
}

impl Block {
    /// Whether there is something in it that one types.
    pub fn has_commands(&self) -> bool {
        ["sh", "bash", "shell", "console"].contains(&self.language.as_str())
            || (self.language.is_empty() && self.text.lines().any(is_command))
            || self.text.lines().any(|line| line.starts_with("$ "))
    }

    /// Whether it is run.
    pub fn is_run(&self) -> bool {
        self.language == "console" && self.mark != Mark::NotRun
    }

    /// What is wrong with it as code of a file, whose text `read` finds.
    pub fn differs_from_file(&self, read: impl Fn(&str) -> String) -> Option<String> {
        // A reader's project lies beside this repository, an example in it.
        let text = self.text.replace("../setpoint/", "../../");
        match &self.mark {
            Mark::File(path) => (read(path) != text).then(|| format!("{path} has another text")),
            Mark::From(path) => (!flat(&read(path)).contains(&flat(&text))).then(|| format!("{path} doesn't have it")),
            _ if self.language == "rust" => Some("say which file it is (`file:`), or a part of (`from:`)".to_owned()),
            _ => None,
        }
    }
}

/// Lines without what they are indented by, each with its end.
fn flat(text: &str) -> String {
    text.lines().map(|line| format!("\n{}", line.trim())).collect::<String>() + "\n"
}

/// Whether a line begins as those do that one types.
fn is_command(line: &str) -> bool {
    let programs = ["setpoint", "kubectl", "cargo", "make", "git", "sudo", "curl", "etcdctl", "export", "systemctl"];
    let mut words = line.split_whitespace();
    words.next().is_some_and(|first| programs.contains(&first)) && words.next().is_some()
}

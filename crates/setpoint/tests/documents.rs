//! The pages of this repository: every command that they show is run, what they show of its output is compared, and code that they
//! show is that of files which are compiled and tested.
//!
//! A block that is run is marked `console`. One that can't be run here says why in a comment right above it:
//! `<!-- not run: … -->`. More comments tell what a block needs, or which file it shows: see [`block::Mark`].

#[path = "documents/block.rs"]
mod block;
// Shared with the tests of the store, which need more of it.
#[allow(dead_code)]
#[path = "../../store/tests/support/etcd_process.rs"]
mod etcd_process;
#[path = "documents/program.rs"]
mod program;
mod server;
mod transcript;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use block::{Block, Mark, blocks};
use etcd_process::Cluster;
use program::Program;
use server::Server;
use setpoint_cli::Figures;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Every page for people.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md"), root().join("README.zh-CN.md"), root().join("ARCHITECTURE.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

#[test]
fn every_block_of_commands_is_run_or_says_why_not() {
    let mut report = String::new();
    for page in pages() {
        for block in blocks(&std::fs::read_to_string(&page).unwrap()) {
            if block.has_commands() && !block.is_run() && block.mark != Mark::NotRun {
                report += &format!("{}:{}: mark it `console`, or say why it is not run\n", page.display(), block.line);
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

#[test]
fn all_code_of_pages_is_that_of_files_that_are_compiled() {
    let read =
        |path: &str| std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut report = String::new();
    for page in pages() {
        for block in blocks(&std::fs::read_to_string(&page).unwrap()) {
            if let Some(why) = block.differs_from_file(read) {
                report += &format!("{}:{}: {why}\n", page.display(), block.line);
            }
        }
    }
    assert!(report.is_empty(), "{report}");
}

/// A command line of ours in a block, as its words.
fn own_commands(block: &Block) -> impl Iterator<Item = Vec<&str>> {
    let lines = block.text.lines().filter_map(|line| line.strip_prefix("$ setpoint "));
    lines.map(|line| line.split_whitespace().take_while(|word| !["|", ">", "&&", "&", "#"].contains(word)).collect())
}

#[test]
fn commands_that_are_not_run_have_words_that_are_known() {
    let mut looked_at = 0;
    for page in pages() {
        let blocks = blocks(&std::fs::read_to_string(&page).unwrap());
        for block in blocks.iter().filter(|block| block.mark == Mark::NotRun) {
            for words in own_commands(block) {
                // Help is given once all words before it are understood.
                let mut asked = Command::new(env!("CARGO_BIN_EXE_setpoint"));
                let asked = asked.args(&words).arg("--help").output().unwrap();
                let said = String::from_utf8_lossy(&asked.stderr).into_owned();
                assert!(asked.status.success(), "{}:{}: {words:?}: {said}", page.display(), block.line);
                looked_at += 1;
            }
        }
    }
    assert!(looked_at >= 2, "only {looked_at} commands");
}

#[test]
fn objects_and_settings_of_pages_are_taken_as_they_are() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start_as(&["up", "--nodes", "1"], &home.path().join("data"));
    let file = home.path().join("shown.yaml");
    let (shown, nowhere) = (file.to_str().unwrap(), home.path().join("nowhere").display().to_string());
    let own = |words: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_setpoint")).args(words).env("KUBECONFIG", &server.kubeconfig).output();
        let output = output.unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (there, said) = own(&["wait", "--for=create", "crd/rollouts.fleet.setpoint.dev"]);
    assert!(there, "{said}");
    let (mut objects, mut settings) = (0, 0);
    for page in pages() {
        for block in blocks(&std::fs::read_to_string(&page).unwrap()) {
            if block.language != "yaml" || matches!(block.mark, Mark::File(_) | Mark::From(_)) {
                continue;
            }
            let place = format!("{}:{}", page.display(), block.line);
            std::fs::write(&file, &block.text).unwrap();
            if block.text.starts_with("apiVersion:") {
                let (taken, said) = own(&["apply", "--dry-run=server", "-f", shown]);
                assert!(taken, "{place}: {said}");
                objects += 1;
            } else if page.ends_with("docs/configuration.md") {
                // They are read before anything is connected to.
                let (_, said) = own(&["scheduler", "--config", shown, "--kubeconfig", &nowhere]);
                assert!(said.contains(&nowhere) && !said.contains(shown), "{place}: {said}");
                settings += 1;
            }
        }
    }
    assert!(objects >= 1 && settings >= 2, "{objects} objects, {settings} settings");
}

/// Names the one page that is run, for whoever writes it.
const ONLY: &str = "ONLY_PAGE";

#[test]
fn what_pages_show_is_what_is_seen() {
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut report = String::new();
    for page in pages().into_iter().filter(|page| page.ends_with(&only) || only.is_empty()) {
        report += &run(&page);
    }
    assert!(report.is_empty(), "{report}\n`UPDATE_TRANSCRIPTS=1` writes what was printed into the pages");
}

/// An etcd of this test's own in the place of the one that a block names; most name none.
struct Etcd(Option<(String, String, Cluster)>);

impl Etcd {
    fn of(mark: &Mark) -> Etcd {
        let Mark::Etcd(shown) = mark else { return Etcd(None) };
        let cluster = Cluster::start(1);
        Etcd(Some((shown.clone(), cluster.store().replace("etcd://", ""), cluster)))
    }

    fn as_it_is(&self, text: &str) -> String {
        self.0.as_ref().map_or(text.to_owned(), |(shown, address, _)| text.replace(shown, address))
    }

    fn as_shown(&self, text: &str) -> String {
        self.0.as_ref().map_or(text.to_owned(), |(shown, address, _)| text.replace(address, shown))
    }
}

/// Runs the commands of one page, from its top to its end, on a control plane of its own.
fn run(page: &Path) -> String {
    let mut text = std::fs::read_to_string(page).unwrap();
    let shown = page.strip_prefix(root()).unwrap_or(page).display().to_string();
    let blocks: Vec<Block> = blocks(&text).into_iter().filter(Block::is_run).collect();
    if blocks.is_empty() {
        return String::new();
    }
    let home = tempfile::tempdir().unwrap();
    let desk = home.path().join("desk");
    std::fs::create_dir(&desk).unwrap();
    let data = desk.join(".local/share/setpoint");
    let command = ["up", "--nodes", "3"];
    let mut server = Some(Server::start_as(&command, &data));
    let address = server.as_ref().map(Server::address).unwrap_or_default();
    let own = Path::new(env!("CARGO_BIN_EXE_setpoint")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let environment = [
        ("PATH", format!("{}:{}:{path}", server::tools().join("bin").display(), own.display())),
        ("HOME", desk.display().to_string()),
        ("KUBECONFIG", data.join("admin.kubeconfig").display().to_string()),
        ("EXAMPLES", root().join("examples").display().to_string()),
    ];
    // A reader comes some seconds after the start.
    let settled = "setpoint wait --for=create node/simulated-2 serviceaccount/default && setpoint wait nodes --all --for=condition=Ready";
    let settled = Command::new("bash").args(["-c", settled]).envs(environment.clone()).output().unwrap();
    assert!(settled.status.success(), "{}", String::from_utf8_lossy(&settled.stderr));
    let kubeconfig = std::fs::read_to_string(data.join("admin.kubeconfig")).unwrap();
    let url = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap().to_owned();
    // A reader's own home and the usual port stand there instead of this run's.
    let clean = |line: &str| line.replace(desk.to_str().unwrap(), "/home/you").replace(&url, "https://127.0.0.1:6443");
    let mut report = String::new();
    let mut programs: BTreeMap<String, Program> = BTreeMap::new();
    for block in blocks {
        let stopped = matches!(block.mark, Mark::Stopped | Mark::Etcd(_));
        match (stopped, server.take()) {
            (true, Some(running)) => running.stop(),
            (false, None) => server = Some(Server::start_at(&address, &command, &data, Stdio::null())),
            (_, as_it_is) => server = as_it_is,
        }
        if let Mark::Beside(command) = &block.mark {
            programs.entry(command.clone()).or_insert_with(|| Program::start(command, &desk, &environment));
        }
        let etcd = Etcd::of(&block.mark);
        let here = etcd.as_it_is(&block.text);
        let (differs, seen) = transcript::run_block(&here, &shown, block.line, &clean, &desk, &environment);
        let seen = etcd.as_shown(&seen);
        text = text.replacen(&block.text, &seen, 1);
        report += &differs;
    }
    if !report.is_empty() && transcript::updates() {
        std::fs::write(page, text).unwrap();
        return String::new();
    }
    report
}

#[test]
fn every_figure_of_the_dashboard_and_the_alerts_is_served() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start_as(&["up", "--nodes", "1"], &home.path().join("data"));
    // One on etcd has figures of it.
    let cluster = Cluster::start(1);
    let on_etcd = Server::start_as(&["server", "--store", &cluster.store()], &home.path().join("on-etcd"));
    let text: String = [&server, &on_etcd]
        .map(|server| {
            let seen = Command::new(env!("CARGO_BIN_EXE_setpoint"))
                .args(["get", "--raw", "/metrics", "--kubeconfig"])
                .arg(&server.kubeconfig)
                .output()
                .unwrap();
            String::from_utf8_lossy(&seen.stdout).into_owned()
        })
        .concat();
    let figures = Figures::parse(&text);
    // A family without samples yet, such as requests that were refused, is told of by its type.
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let served: BTreeSet<&str> = figures.names().chain(families).collect();
    let families = ["setpoint_", "apiserver_", "workqueue_", "controller_", "process_", "leader_", "rest_client_"];
    let mut named = BTreeSet::new();
    for file in ["dashboard.json", "alerts.yaml"] {
        let text = std::fs::read_to_string(root().join("docs/ops").join(file)).unwrap();
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').map(str::to_owned);
        named.extend(words.filter(|word| families.iter().any(|family| word.starts_with(family))));
    }
    let missing: Vec<&String> = named.iter().filter(|name| !served.contains(name.as_str())).collect();
    assert!(named.len() >= 10, "{named:?}");
    assert_eq!(missing, Vec::<&String>::new(), "served are {served:?}");
}

#[test]
fn every_link_between_pages_leads_somewhere() {
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            if target.is_empty() || target.contains("://") || target.contains(' ') {
                continue;
            }
            let path = page.parent().unwrap().join(target);
            assert!(path.exists(), "{}: {target} is not there", page.display());
        }
    }
}

/// What a page in any language has in common with its translations: its shape, its words for machines, and where it leads.
fn skeleton(text: &str) -> (Vec<String>, BTreeSet<String>, BTreeSet<String>) {
    let parts = || text.split("```").enumerate();
    let prose: String = parts().filter(|(at, _)| at % 2 == 0).map(|(_, part)| part).collect();
    let commands = parts().filter(|(at, _)| at % 2 == 1).flat_map(|(_, part)| part.lines());
    let commands = commands.filter(|line| line.starts_with("$ ")).map(str::to_owned);
    let begins = |line: &&str| line.starts_with(['#', '|']);
    let shape = prose.lines().filter(begins).map(|line| match line.starts_with('#') {
        true => line.split(' ').next().unwrap_or_default().to_owned(),
        false => format!("a row of {} cells", line.replace("\\|", "").matches('|').count()),
    });
    let words = prose.split('`').skip(1).step_by(2).map(str::to_owned);
    let links = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    // Each leads to the other, and to headings of its own.
    let links = links.filter(|link| !link.starts_with('#') && !link.starts_with("README")).map(str::to_owned);
    (commands.chain(shape).collect(), words.collect(), links.collect())
}

#[test]
fn the_first_page_says_the_same_in_both_languages() {
    let read = |name: &str| skeleton(&std::fs::read_to_string(root().join(name)).unwrap());
    let ((shape, words, links), (other_shape, other_words, other_links)) = (read("README.md"), read("README.zh-CN.md"));
    assert_eq!(shape, other_shape);
    let differing: Vec<_> = words.symmetric_difference(&other_words).collect();
    assert!(differing.is_empty(), "only one page has {differing:?}");
    let differing: Vec<_> = links.symmetric_difference(&other_links).collect();
    assert!(differing.is_empty(), "only one page leads to {differing:?}");
}

/// The numbers of a text, as they are written.
fn numbers(text: &str) -> Vec<String> {
    let is_part = |letter: char| letter.is_ascii_digit() || matches!(letter, ',' | '.');
    let words = text.split(|letter: char| !is_part(letter)).map(|word| word.trim_matches([',', '.']));
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[test]
fn figures_of_the_first_page_are_those_of_the_page_of_figures() {
    let read = |name: &str| std::fs::read_to_string(root().join(name)).unwrap();
    let figures = read("docs/figures.md");
    let lines: Vec<BTreeSet<String>> = figures.lines().map(|line| numbers(line).into_iter().collect()).collect();
    // What is measured, and the command, are words; the two columns between them are figures.
    let cells = |name: &str| -> Vec<String> {
        let text = read(name);
        let table = text.lines().skip_while(|line| !line.contains("kube-apiserver 1.36")).skip(2);
        let rows = table.take_while(|line| line.starts_with('|'));
        rows.flat_map(|row| row.split('|').skip(2).take(2).map(str::to_owned).collect::<Vec<_>>()).collect()
    };
    let own = cells("README.md");
    assert!(own.len() > 10, "where is the table? {own:?}");
    for cell in &own {
        let wanted = numbers(cell);
        assert!(lines.iter().any(|line| wanted.iter().all(|number| line.contains(number))), "measured where: {cell}");
    }
    let of = |cells: &[String]| cells.iter().map(|cell| numbers(cell)).collect::<Vec<_>>();
    assert_eq!(of(&own), of(&cells("README.zh-CN.md")));
}

/// What can be done with objects of an ordinary kind.
const ALL_VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Every kind that the server has, with its verbs and its parts, as a table of a page.
async fn kinds(client: kube::Client) -> String {
    let mut lists = vec![client.list_core_api_resources("v1").await.unwrap()];
    for group in client.list_api_groups().await.unwrap().groups {
        for version in group.versions {
            lists.push(client.list_api_group_resources(&version.group_version).await.unwrap());
        }
    }
    let mut table = "| Kind | API | Verbs | Parts with paths of their own |\n|---|---|---|---|\n".to_owned();
    for list in lists {
        for resource in list.resources.iter().filter(|resource| !resource.name.contains('/')) {
            let mut verbs = resource.verbs.clone();
            verbs.sort();
            let verbs = if verbs == ALL_VERBS { "all".to_owned() } else { verbs.join(", ") };
            let prefix = format!("{}/", resource.name);
            let mut parts: Vec<&str> =
                list.resources.iter().filter_map(|other| other.name.strip_prefix(&prefix)).collect();
            parts.sort_unstable();
            table += &format!("| {} | {} | {verbs} | {} |\n", resource.kind, list.group_version, parts.join(", "));
        }
    }
    table
}

#[tokio::test]
async fn the_table_of_kinds_is_what_the_server_says() {
    let home = tempfile::tempdir().unwrap();
    let server = Server::start(&home.path().join("data"));
    let page = root().join("docs/compatibility.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("<!-- kinds -->\n").expect("the page has a place for it");
    let (shown, after) = rest.split_once("<!-- end of kinds -->\n").expect("the place has an end");
    let served = kinds(server.client().await).await;
    assert!(served.lines().count() > 50, "{served}");
    if shown != served && transcript::updates() {
        std::fs::write(page, format!("{before}<!-- kinds -->\n{served}<!-- end of kinds -->\n{after}")).unwrap();
        return;
    }
    assert_eq!(shown, served, "`UPDATE_TRANSCRIPTS=1` writes what is served into the page");
}

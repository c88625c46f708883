//! `setpoint tree`: an object and what it owns, each with how it fares.

use clap::Args;
use serde_json::{Value, json};
use setpoint_schema::human;

use crate::connection::ConnectionArguments;
use crate::discovery::Discovery;
use crate::failure::{Failure, note, print};
use crate::family::{self, Family};
use crate::get::now;
use crate::health;
use crate::output::{Form, FormArguments};
use crate::terminal::{coloured, escape, with_progress};
use crate::{selection, tab::Tabs};

/// The command line.
#[derive(Args, Debug)]
pub struct TreeArguments {
    /// The object: KIND/NAME or KIND NAME
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    pub words: Vec<String>,
    /// More columns, or for programs: wide, json or yaml
    #[arg(long = "output", short = 'o', value_name = "FORM", value_enum)]
    pub form: Option<TreeForm>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub connection: ConnectionArguments,
}

/// How a tree is told.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeForm {
    /// With more columns.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

impl TreeArguments {
    /// The form that programs read, if one was asked for.
    #[must_use]
    pub fn form(&self) -> FormArguments {
        let form = match self.form {
            Some(TreeForm::Json) => Some(Form::Json),
            Some(TreeForm::Yaml) => Some(Form::Yaml),
            Some(TreeForm::Wide) | None => None,
        };
        FormArguments { form }
    }
}

/// Runs it.
pub async fn run(arguments: &TreeArguments) -> Result<(), Failure> {
    let server = arguments.connection.connect().await?;
    let discovery = Discovery::read(&server).await?;
    let (kind, name) = selection::one(&arguments.words, &discovery)?;
    let family = with_progress("reading", family::read(&server, &discovery, &kind, &name)).await?;
    if !arguments.form().print(|| nested(&family, 0)) {
        let columns = if arguments.form == Some(TreeForm::Wide) { Columns::All } else { Columns::Few };
        print(&draw(&family, now(), columns));
    }
    if !family.unseen.is_empty() {
        note(&format!("not looked at: {}", family.unseen.join(", ")));
    }
    Ok(())
}

/// The tree for programs: each object with its children in it.
fn nested(family: &Family, at: usize) -> Value {
    let Some(member) = family.members.get(at) else { return Value::Null };
    let (object, health) = (&member.object, health::of(&member.object));
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "namespace": object["metadata"]["namespace"], "name": object["metadata"]["name"],
        "health": health.mark.word(), "words": health.words,
        "children": family.children(at).map(|(at, _)| nested(family, at)).collect::<Vec<_>>(),
    })
}

/// Which columns a tree has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Columns {
    Few,
    All,
}

/// The tree as lines. Further columns come behind the others.
fn draw(family: &Family, now: i64, columns: Columns) -> String {
    let mut tabs = Tabs::default();
    let head = ["OBJECT", "HEALTH", "AGE", "APIVERSION", "NAMESPACE", "NODE", "VERSION"];
    let count = if columns == Columns::All { head.len() } else { 3 };
    tabs.row(head[..count].iter().copied());
    let mut open: Vec<bool> = Vec::new();
    for member in &family.members {
        open.truncate(member.depth.saturating_sub(1));
        let stem: String = open.iter().map(|goes_on| if *goes_on { "│ " } else { "  " }).collect();
        let branch = match (member.depth, member.is_last) {
            (0, _) => "",
            (_, true) => "└─",
            (_, false) => "├─",
        };
        if member.depth > 0 {
            open.push(!member.is_last);
        }
        let object = &member.object;
        let text = |value: &Value| escape(value.as_str().unwrap_or_default());
        let health = health::of(object);
        let fares = format!("{} {}", health.mark.sign(), health.words);
        let or_none =
            |value: &Value| value.as_str().filter(|text| !text.is_empty()).map_or("<none>".to_owned(), escape);
        let cells = [
            format!("{stem}{branch}{}/{}", text(&object["kind"]), text(&object["metadata"]["name"])),
            coloured(fares.trim_end(), health.mark.colour()),
            human::age(object["metadata"].get("creationTimestamp"), now),
            or_none(&object["apiVersion"]),
            or_none(&object["metadata"]["namespace"]),
            or_none(&object["spec"]["nodeName"]),
            or_none(&object["metadata"]["resourceVersion"]),
        ];
        tabs.row(cells.into_iter().take(count));
    }
    tabs.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, name: &str, owner: &str) -> Value {
        json!({
            "kind": kind,
            "metadata": {
                "name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": if owner.is_empty() { json!([]) } else { json!([{"uid": owner}]) },
            },
        })
    }

    #[test]
    fn children_stand_below_their_owners() {
        let others = vec![
            object("Pod", "p2", "r1"),
            object("Pod", "p1", "r1"),
            object("ReplicaSet", "r1", "d"),
            object("ReplicaSet", "r2", "d"),
            object("Pod", "p3", "r2"),
        ];
        let drawn = draw(&Family::of(object("Deployment", "d", ""), others), 1_767_225_600 + 60, Columns::Few);
        let names: Vec<&str> = drawn.lines().map(|line| line.split("   ").next().unwrap_or_default()).collect();
        assert_eq!(
            names,
            ["OBJECT", "Deployment/d", "├─ReplicaSet/r1", "│ ├─Pod/p1", "│ └─Pod/p2", "└─ReplicaSet/r2", "  └─Pod/p3"]
        );
        assert!(drawn.lines().nth(1).is_some_and(|line| line.ends_with("60s")), "{drawn}");
    }

    #[test]
    fn further_columns_come_behind_the_others() {
        let mut pod = object("Pod", "p", "d");
        pod["apiVersion"] = "v1".into();
        pod["spec"] = json!({"nodeName": "n1"});
        pod["metadata"]["namespace"] = "default".into();
        pod["metadata"]["resourceVersion"] = "7".into();
        let family = Family::of(object("Deployment", "d", ""), vec![pod]);
        let wide = draw(&family, 1_767_225_600 + 60, Columns::All);
        let words = |line: usize| wide.lines().nth(line).unwrap_or_default().split_whitespace().collect::<Vec<_>>();
        assert_eq!(words(0), ["OBJECT", "HEALTH", "AGE", "APIVERSION", "NAMESPACE", "NODE", "VERSION"]);
        assert_eq!(words(1)[words(1).len() - 4..], ["<none>", "<none>", "<none>", "<none>"]);
        assert_eq!(words(2)[words(2).len() - 5..], ["60s", "v1", "default", "n1", "7"]);
    }

    #[test]
    fn programs_get_children_in_their_owners() {
        let family =
            Family::of(object("Deployment", "d", ""), vec![object("Pod", "p", "r"), object("ReplicaSet", "r", "d")]);
        let tree = nested(&family, 0);
        assert_eq!((&tree["name"], &tree["health"]), (&json!("d"), &json!("working")));
        assert_eq!(tree["children"][0]["children"][0]["name"], "p");
    }

    #[test]
    fn a_ring_of_owners_ends() {
        let family = Family::of(object("A", "a", "b"), vec![object("B", "b", "a"), object("A", "a", "b")]);
        assert_eq!(family.members.len(), 2);
    }
}

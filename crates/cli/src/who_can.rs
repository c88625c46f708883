//! `setpoint who-can`: everybody who may do something, and through which binding and role.

mod grant;

use clap::Args;
use serde_json::{Value, json};

use crate::connection::ConnectionArguments;
use crate::discovery::{Discovery, Kind};
use crate::failure::{Failure, print};
use crate::output::FormArguments;
use crate::request::{Ask, Server, Trouble};
use crate::slip;
use crate::tab::Tabs;
use crate::terminal::{escape, with_progress};
use grant::{Asked, Grant, Policies};

/// Those who may do everything without any role: the server doesn't ask further.
const MASTERS: &str = "system:masters";

/// What can be asked for; a custom verb is nothing that a mistake is found by.
const VERBS: [&str; 12] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "impersonate",
    "bind",
    "escalate",
    "approve",
];

/// The command line.
#[derive(Args, Debug)]
pub struct WhoCanArguments {
    /// What is done: get, list, watch, create, update, patch, delete, ...
    #[arg(value_name = "VERB")]
    pub verb: String,
    /// With what: a kind, an object as KIND/NAME or KIND NAME, or a path such as /metrics
    #[arg(value_name = "KIND[/NAME]", required = true, num_args = 1..=2)]
    pub words: Vec<String>,
    /// With this part of it, such as status or log
    #[arg(long, value_name = "NAME")]
    pub subresource: Option<String>,
    /// In any namespace, each told
    #[arg(long, short = 'A')]
    pub all_namespaces: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub form: FormArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub connection: ConnectionArguments,
}

/// Runs it.
pub async fn run(arguments: &WhoCanArguments) -> Result<(), Failure> {
    let server = arguments.connection.connect().await?;
    let (asked, kind) = asked(arguments, &server).await?;
    let namespaces = match &kind {
        Some(kind) if !kind.namespaced => Namespaces::None,
        None => Namespaces::None,
        Some(_) if arguments.all_namespaces => Namespaces::All,
        Some(_) => Namespaces::One,
    };
    let policies = with_progress("reading roles and bindings", read(&server, namespaces)).await?;
    let grants = policies.grants(&asked);
    if arguments.form.print(|| listed(&grants)) {
        return Ok(());
    }
    print(&table(&grants, namespaces == Namespaces::All));
    Ok(())
}

/// Whose bindings count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Namespaces {
    /// Only those of the whole cluster.
    None,
    One,
    All,
}

async fn asked(arguments: &WhoCanArguments, server: &Server) -> Result<(Asked, Option<Kind>), Failure> {
    let verb = arguments.verb.to_lowercase();
    if let [path] = &arguments.words[..]
        && path.starts_with('/')
    {
        return Ok((Asked::path(&verb, path), None));
    }
    let discovery = Discovery::read(server).await?;
    if let (Err(_), Ok(kind)) = (discovery.find(&arguments.words[0]), discovery.find(&verb)) {
        let right = format!("setpoint who-can {} {}", arguments.words[0], kind.resource);
        return Err(Failure::usage("can't tell what is asked for", "what is done stands before the kind")
            .hint(format!("did you mean `{right}`?")));
    }
    let (kind, name) = match &arguments.words[..] {
        [word] if word.contains('/') => crate::selection::pair(word, &discovery)?,
        [kind, name] => (discovery.find(kind)?.clone(), name.clone()),
        [kind, ..] => (discovery.find(kind)?.clone(), String::new()),
        [] => return Err(Failure::usage("can't tell what is asked for", "expected a verb and a kind")),
    };
    let is_known = VERBS.contains(&verb.as_str()) || kind.verbs.contains(&verb);
    if let Some(near) = slip::nearest(&verb, VERBS.into_iter()).filter(|_| !is_known) {
        return Err(Failure::usage("can't tell what is asked for", format!("{verb:?} is nothing that is done"))
            .hint(format!("did you mean `{near}`?")));
    }
    let asked = Asked::object(&verb, &kind, arguments.subresource.as_deref(), &name);
    Ok((asked, Some(kind)))
}

async fn read(server: &Server, namespaces: Namespaces) -> Result<Policies, Trouble> {
    const GROUP: &str = "/apis/rbac.authorization.k8s.io/v1";
    let list = |resource: &'static str| async move {
        let path = match namespaces {
            Namespaces::One if !resource.starts_with("cluster") => {
                format!("{GROUP}/namespaces/{}/{resource}", crate::request::segment(&server.namespace))
            }
            _ => format!("{GROUP}/{resource}"),
        };
        if namespaces == Namespaces::None && !resource.starts_with("cluster") {
            return Ok(Vec::new());
        }
        let mut list = server.get(Ask::get(path)).await?;
        match list["items"].take() {
            Value::Array(items) => Ok::<_, Trouble>(items),
            _ => Ok(Vec::new()),
        }
    };
    let (cluster_roles, cluster_bindings, roles, bindings) =
        tokio::try_join!(list("clusterroles"), list("clusterrolebindings"), list("roles"), list("rolebindings"))?;
    Ok(Policies { cluster_roles, cluster_bindings, roles, bindings })
}

fn listed(grants: &[Grant]) -> Value {
    let masters = json!({"kind": "Group", "name": MASTERS});
    let others = grants.iter().map(|grant| {
        json!({
            "kind": grant.kind, "name": grant.name, "namespace": grant.namespace, "binding": grant.binding, "role": grant.role,
            "onlyNames": grant.only,
        })
    });
    Value::Array([masters].into_iter().chain(others).collect())
}

fn table(grants: &[Grant], with_namespaces: bool) -> String {
    let mut tabs = Tabs::default();
    let mut row = |kind: &str, name: &str, place: &str, through: &str| {
        let place = with_namespaces.then_some(place);
        tabs.row([Some(kind), Some(name), place, Some(through)].into_iter().flatten().map(escape));
    };
    row("KIND", "NAME", "IN NAMESPACE", "THROUGH");
    row("Group", MASTERS, "any", "nothing: its members may do everything");
    for grant in grants {
        let only = if grant.only.is_empty() { String::new() } else { format!(", only {}", grant.only.join(", ")) };
        let place = grant.namespace.as_deref().unwrap_or("any");
        row(&grant.kind, &grant.name, place, &format!("{}, {}{only}", grant.binding, grant.role));
    }
    tabs.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_told_with_what_lets_them() {
        let grant = Grant {
            kind: "User".to_owned(),
            name: "jane".to_owned(),
            namespace: Some("shop".to_owned()),
            binding: "rolebinding/jane".to_owned(),
            role: "role/cleaner".to_owned(),
            only: vec!["web".to_owned()],
        };
        let told = table(std::slice::from_ref(&grant), false);
        let told: Vec<&str> = told.lines().collect();
        assert_eq!(told[0], "KIND    NAME             THROUGH");
        assert_eq!(told[2], "User    jane             rolebinding/jane, role/cleaner, only web");
        assert!(table(&[grant], true).contains("jane             shop           rolebinding/jane"));
    }
}

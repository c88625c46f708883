//! `setpoint why`: the first cause for which an object is not as it should be, in one sentence.

mod cause;

use clap::Args;
use serde_json::{Value, json};
use setpoint_fleet::tell::Fleet;

use crate::connection::ConnectionArguments;
use crate::discovery::Discovery;
use crate::failure::{Failure, note, say};
use crate::output::FormArguments;
use crate::request::{Ask, METADATA, Server};
use crate::terminal::{escape, with_progress};
use crate::{events, family, health, selection, timeline};

pub use cause::{Facts, sentence};

/// Most pods of a Service that are looked at.
const PODS_MAX: &str = "100";

/// The command line.
#[derive(Args, Debug)]
pub struct WhyArguments {
    /// The object: KIND/NAME or KIND NAME
    #[arg(value_name = "KIND/NAME", required = true, num_args = 1..=2)]
    pub words: Vec<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub form: FormArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub connection: ConnectionArguments,
}

/// Runs it.
pub async fn run(arguments: &WhyArguments) -> Result<(), Failure> {
    let server = arguments.connection.connect().await?;
    let discovery = Discovery::read(&server).await?;
    let (kind, name) = selection::one(&arguments.words, &discovery)?;
    if kind.kind == "Vehicle" && kind.group == setpoint_fleet::kinds::GROUP {
        return vehicle(&server, &name, arguments.form).await;
    }
    let gathered = with_progress("reading", async {
        let family = family::read(&server, &discovery, &kind, &name).await?;
        let namespace = kind.namespaced.then_some(server.namespace.as_str());
        // Without events the rest still tells something.
        let events = events::list(&server, namespace.or(Some("default")), None).await.unwrap_or_default();
        let selected = selected(&server, family.root()).await;
        let missing = missing(&server, family.root()).await;
        let nodes = nodes(&server, &family).await;
        let owners = owners(&server, &discovery, family.root()).await;
        // Only the server beside its controllers has them.
        let traces = timeline::traces(&server).await.unwrap_or_default();
        Ok::<_, Failure>(Facts { family, events, selected, missing, nodes, owners, traces, now: crate::get::now() })
    });
    let facts = gathered.await?;
    let printed = arguments.form.print(|| {
        let root = facts.family.root();
        let health = health::of(root);
        json!({
            "apiVersion": root["apiVersion"], "kind": root["kind"],
            "namespace": root["metadata"]["namespace"], "name": root["metadata"]["name"],
            "health": health.mark.word(), "words": health.words, "why": sentence(&facts),
        })
    });
    if !printed {
        say(&escape(&sentence(&facts)));
    }
    if !facts.family.unseen.is_empty() {
        note(&format!("not looked at: {}", facts.family.unseen.join(", ")));
    }
    Ok(())
}

/// Vehicles have a teller of their own.
async fn vehicle(server: &Server, name: &str, form: FormArguments) -> Result<(), Failure> {
    let failed = |error: kube::Error| {
        Failure::new("can't read the fleet", error).hint("`setpoint doctor` looks at what is between here and there")
    };
    let fleet = Fleet::read(&server.client, &server.namespace).await.map_err(failed)?;
    let told = fleet.why(name, k8s_openapi::jiff::Timestamp::now());
    let missing = || {
        Failure::error(format!("there is no vehicle {name:?} in {}", server.namespace))
            .hint("`setpoint get vehicles -A` lists those that are there")
    };
    let told = told.ok_or_else(missing)?;
    if !form.print(|| json!({"kind": "Vehicle", "namespace": server.namespace, "name": name, "why": told})) {
        say(&escape(&told));
    }
    Ok(())
}

/// Most owners above an object that are looked at.
const OWNERS_MAX: usize = 8;

/// The object that controls an object, the one that controls that, and so on. One that is gone is told as an object without a name.
async fn owners(server: &Server, discovery: &Discovery, root: &Value) -> Vec<Value> {
    let mut owners: Vec<Value> = Vec::new();
    while owners.len() < OWNERS_MAX {
        let references =
            owners.last().unwrap_or(root)["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        let Some(reference) = references.iter().find(|one| one["controller"] == true) else { break };
        let text = |name: &str| reference[name].as_str().unwrap_or_default();
        let Some(kind) = discovery.of_manifest(text("apiVersion"), text("kind")) else { break };
        match server.get(Ask::get(kind.path_of(&server.namespace, text("name"))).quietly()).await {
            Ok(mut owner) if owner["metadata"]["uid"] == reference["uid"] => {
                owner["kind"] = kind.kind.clone().into();
                owners.push(owner);
            }
            // Another of the same name is not its owner.
            Ok(_) => owners.push(json!({"kind": text("kind"), "goneName": text("name")})),
            Err(trouble) if trouble.is("NotFound") => {
                owners.push(json!({"kind": text("kind"), "goneName": text("name")}));
            }
            Err(_) => break,
        }
    }
    owners
}

/// The pods that a Service chooses.
async fn selected(server: &Server, root: &Value) -> Option<Vec<Value>> {
    let selector = root["spec"]["selector"].as_object().filter(|_| root["kind"] == "Service")?;
    let terms: Vec<_> =
        selector.iter().filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?))).collect();
    let ask = Ask::get(format!("/api/v1/namespaces/{}/pods", server.namespace));
    let mut list = server.get(ask.with("labelSelector", terms.join(",")).with("limit", PODS_MAX)).await.ok()?;
    match list["items"].take() {
        Value::Array(pods) => Some(pods),
        _ => None,
    }
}

/// The Services that an Ingress leads to and that are not there.
async fn missing(server: &Server, root: &Value) -> Vec<String> {
    let mut missing = Vec::new();
    for name in backends(root) {
        let namespace = crate::request::segment(&server.namespace);
        let path = format!("/api/v1/namespaces/{namespace}/services/{}", crate::request::segment(&name));
        if server.get(Ask::get(path).accept(METADATA).quietly()).await.is_err_and(|trouble| trouble.is("NotFound")) {
            missing.push(name);
        }
    }
    missing
}

/// The names of the Services that an Ingress leads to.
fn backends(root: &Value) -> std::collections::BTreeSet<String> {
    let spec = &root["spec"];
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let paths = list(&spec["rules"]).into_iter().flat_map(|rule| list(&rule["http"]["paths"]));
    let all = paths.map(|path| path["backend"].clone()).chain([spec["defaultBackend"].clone()]);
    let named = all.filter(|_| root["kind"] == "Ingress");
    named.filter_map(|backend| Some(backend["service"]["name"].as_str()?.to_owned())).collect()
}

/// The nodes that pods of the family are on.
async fn nodes(server: &Server, family: &family::Family) -> Vec<Value> {
    let names = family.members.iter().filter_map(|member| member.object["spec"]["nodeName"].as_str());
    let names: std::collections::BTreeSet<&str> = names.collect();
    let mut nodes = Vec::new();
    for name in names.into_iter().take(20) {
        if let Ok(node) = server.get(Ask::get(format!("/api/v1/nodes/{}", crate::request::segment(name)))).await {
            nodes.push(node);
        }
    }
    nodes
}

//! An object and everything that it owns, directly or not.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt;
use serde_json::Value;

use crate::absent;
use crate::discovery::{Discovery, Kind};
use crate::failure::Failure;
use crate::request::{Ask, METADATA, Server, Trouble};

/// Requests under way at once.
const AT_ONCE: usize = 8;

/// Most members that are read: a family that is larger is told in part.
const MEMBERS_MAX: usize = 1000;

/// One of the family.
#[derive(Clone, Debug)]
pub struct Member {
    /// The object.
    pub object: Value,
    /// How far from the root.
    pub depth: usize,
    /// Whether it is the last child of its owner.
    pub is_last: bool,
}

/// A family: the root first, then each child followed by its own children.
#[derive(Debug, Default)]
pub struct Family {
    /// All members.
    pub members: Vec<Member>,
    /// Kinds that could not be looked at, and why.
    pub unseen: Vec<String>,
}

impl Family {
    /// The object itself.
    pub fn root(&self) -> &Value {
        static NOTHING: Value = Value::Null;
        self.members.first().map_or(&NOTHING, |member| &member.object)
    }

    /// The children of the member at a place, with their places.
    pub fn children(&self, of: usize) -> impl Iterator<Item = (usize, &Member)> {
        let depth = self.members.get(of).map_or(0, |member| member.depth);
        let below = self.members.iter().enumerate().skip(of + 1).take_while(move |(_, member)| member.depth > depth);
        below.filter(move |(_, member)| member.depth == depth + 1)
    }

    /// Puts objects in the order of a tree.
    pub fn of(root: Value, others: Vec<Value>) -> Family {
        let mut children: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for object in others {
            for owner in owners(&object) {
                children.entry(owner).or_default().push(object.clone());
            }
        }
        let (mut family, mut seen) = (Family::default(), BTreeSet::new());
        family.add(root, 0, true, &children, &mut seen);
        family
    }

    fn add(
        &mut self,
        object: Value,
        depth: usize,
        is_last: bool,
        children: &BTreeMap<String, Vec<Value>>,
        seen: &mut BTreeSet<String>,
    ) {
        let uid = text(&object["metadata"]["uid"]);
        if !seen.insert(uid.clone()) || self.members.len() >= MEMBERS_MAX {
            return;
        }
        self.members.push(Member { object, depth, is_last });
        let mut own = children.get(&uid).cloned().unwrap_or_default();
        own.sort_by_key(|child| (text(&child["kind"]), text(&child["metadata"]["name"])));
        let last = own.len().saturating_sub(1);
        for (at, child) in own.into_iter().enumerate() {
            self.add(child, depth + 1, at == last, children, seen);
        }
    }
}

/// Reads an object and its family.
pub async fn read(server: &Server, discovery: &Discovery, kind: &Kind, name: &str) -> Result<Family, Failure> {
    let root = named(kind, absent::find(server, kind, &server.namespace, name).await?);
    let namespace = kind.namespaced.then_some(server.namespace.as_str());
    let kinds = discovery.listable().into_iter().filter(|one| one.resource != "events");
    let kinds: Vec<&Kind> = kinds.filter(|one| namespace.is_none() || one.namespaced).collect();
    let lists = futures_util::stream::iter(kinds)
        .map(|kind| async move { (kind, all(server, kind, namespace).await) })
        .buffer_unordered(AT_ONCE);
    let (mut owned, mut unseen) = (Vec::new(), Vec::new());
    let found: Vec<_> = lists.collect().await;
    for (kind, list) in found {
        match list {
            Ok(items) => {
                owned.extend(items.into_iter().filter(|item| !owners(item).is_empty()).map(|item| (kind, item)))
            }
            Err(Trouble::Refused(status)) => unseen.push(format!("{} ({})", kind.resource, text(&status["reason"]))),
            Err(trouble) => return Err(trouble.into()),
        }
    }
    let related = related(&text(&root["metadata"]["uid"]), owned);
    let objects = futures_util::stream::iter(related)
        .map(|(kind, item)| async move {
            let (namespace, name) = (text(&item["metadata"]["namespace"]), text(&item["metadata"]["name"]));
            // Who is gone meanwhile is not of the family any more.
            server.get(Ask::get(kind.path_of(&namespace, &name)).quietly()).await.ok().map(|object| named(kind, object))
        })
        .buffer_unordered(AT_ONCE);
    let objects: Vec<Value> = objects.filter_map(std::future::ready).collect().await;
    Ok(Family { unseen, ..Family::of(root, objects) })
}

/// Those that the root owns, directly or not.
fn related<'a>(root: &str, mut owned: Vec<(&'a Kind, Value)>) -> Vec<(&'a Kind, Value)> {
    let mut family = BTreeSet::from([root.to_owned()]);
    let mut members = Vec::new();
    loop {
        let (near, far): (Vec<_>, Vec<_>) =
            owned.into_iter().partition(|(_, item)| owners(item).iter().any(|owner| family.contains(owner)));
        owned = far;
        if near.is_empty() || members.len() >= MEMBERS_MAX {
            members.truncate(MEMBERS_MAX);
            return members;
        }
        family.extend(near.iter().map(|(_, item)| text(&item["metadata"]["uid"])));
        members.extend(near);
    }
}

async fn all(server: &Server, kind: &Kind, namespace: Option<&str>) -> Result<Vec<Value>, Trouble> {
    let mut list = server.get(Ask::get(kind.path(namespace)).accept(METADATA).quietly()).await?;
    match list["items"].take() {
        Value::Array(items) => Ok(items),
        _ => Ok(Vec::new()),
    }
}

fn named(kind: &Kind, mut object: Value) -> Value {
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.clone().into();
    object
}

fn owners(object: &Value) -> Vec<String> {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.map(|owner| text(&owner["uid"])).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

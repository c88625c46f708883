//! Random writes by several managers, compared with an obvious model: objects and ownership as plain sets of full paths,
//! computed from scratch by the definitions. The order of lists is not modelled.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map as Object, Value, json};

use super::{ApplyError, Managers, OnConflict, OneVersion, Operation, Write};
use crate::types::{Field, List, ListType, Map, Published, Schema, Shape, Struct, Type, TypeId, head};

/// A type of the model.
#[derive(Debug, Clone)]
enum Ty {
    Text,
    AtomicList,
    Set,
    Struct(BTreeMap<&'static str, Ty>, bool),
    Map(Box<Ty>, bool),
    /// Items with the key `k` and these fields.
    Keyed(BTreeMap<&'static str, Ty>),
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    /// One field, as text; null is what is left of something empty.
    Leaf(String),
    /// Something with children. Named: a declared field.
    Inner,
}

type Path = Vec<String>;
type Paths = BTreeSet<Path>;
/// An object: each path with what is there, and whether it is a declared field.
type Nodes = BTreeMap<Path, (Node, bool)>;

const NAMES: [&str; 3] = ["a", "b", "c"];
const NULL: &str = "null";

/// The state of the model.
#[derive(Debug, Default)]
struct Model {
    live: Option<Nodes>,
    owners: BTreeMap<(String, bool), Paths>,
}

#[derive(Debug, Clone)]
enum Op {
    Apply {
        manager: &'static str,
        force: bool,
        spec: Value,
    },
    Update {
        manager: &'static str,
        spec: Value,
    },
    /// The server sets fields by itself, as defaults and admission do: nobody owns them.
    Admit {
        spec: Value,
    },
    /// A client that makes the server forget all managers.
    Forget,
}

impl Model {
    fn apply(&mut self, manager: &str, force: bool, config: &Nodes) -> Result<(), Paths> {
        let live = self.live.clone().unwrap_or_default();
        let mut owners = self.owners.clone();
        if owners.is_empty() && !live.is_empty() {
            owners.insert(("before-first-apply".to_owned(), false), live.keys().cloned().collect());
        }
        let me = (manager.to_owned(), true);
        let last = owners.insert(me.clone(), mentioned(config)).unwrap_or_default();
        let mut merged = live.clone();
        merged.extend(config.clone());
        let new = pruned(merged, &last, owners.values().flatten().cloned().collect());
        let (changed, removed) = compare(&live, &new);
        let touched: Paths = owners.iter().filter(|(who, _)| **who != me).flat_map(|(_, set)| set & &changed).collect();
        if !force && !touched.is_empty() {
            return Err(touched);
        }
        for (_, set) in owners.iter_mut().filter(|(who, _)| **who != me) {
            *set = &(&*set - &changed) - &removed;
        }
        owners.retain(|_, set| !set.is_empty());
        (self.live, self.owners) = (Some(without_nulls(new)), owners);
        Ok(())
    }

    fn update(&mut self, manager: &str, new: Nodes) {
        let existed = self.live.is_some();
        let (changed, removed) = compare(&self.live.take().unwrap_or_default(), &new);
        self.live = Some(new);
        if existed && self.owners.is_empty() {
            return;
        }
        for set in self.owners.values_mut() {
            *set = &(&*set - &changed) - &removed;
        }
        self.owners.entry((manager.to_owned(), false)).or_default().extend(changed);
        self.owners.retain(|_, set| !set.is_empty());
    }
}

/// What somebody who applies this owns: leaves, and items of lists and maps.
fn mentioned(nodes: &Nodes) -> Paths {
    let is_owned = |(node, named): &(Node, bool)| !named || matches!(node, Node::Leaf(_));
    nodes.iter().filter(|(_, at)| is_owned(at)).map(|(path, _)| path.clone()).collect()
}

/// The set with every declared field above one of its members.
fn named(set: &Paths, nodes: &Nodes) -> Paths {
    let above = set.iter().flat_map(|path| (1..path.len()).map(|n| path[..n].to_vec()));
    set.iter().cloned().chain(above.filter(|path| nodes.get(path).is_some_and(|(_, named)| *named))).collect()
}

fn removed(nodes: &Nodes, set: &Paths) -> Nodes {
    let is_gone = |path: &Path| (1..=path.len()).any(|n| set.contains(&path[..n]));
    let mut left: Nodes =
        nodes.iter().filter(|(path, _)| !is_gone(path)).map(|(p, n)| (p.clone(), n.clone())).collect();
    let parents: Paths = left.keys().map(|path| path[..path.len() - 1].to_vec()).collect();
    for (path, (node, _)) in &mut left {
        if *node == Node::Inner && !parents.contains(path) {
            *node = Node::Leaf(NULL.to_owned());
        }
    }
    left
}

/// Without what was owned by the applier and is owned by nobody now.
fn pruned(merged: Nodes, last: &Paths, owned: Paths) -> Nodes {
    if last.is_empty() {
        return merged;
    }
    let last = named(last, &merged);
    let all = named(&mentioned(&merged), &merged);
    let first = removed(&merged, &last);
    let kept = &named(&mentioned(&first), &merged) | &named(&owned, &merged);
    let second = removed(&merged, &(&all - &kept));
    let gone = &(&all - &named(&mentioned(&second), &merged)) & &last;
    removed(&merged, &gone)
}

/// Paths that are new or different, and paths that are gone.
fn compare(old: &Nodes, new: &Nodes) -> (Paths, Paths) {
    let differs = |path: &Path, node: &Node| match (old.get(path), node) {
        (None, _) => true,
        (Some((Node::Leaf(before), _)), Node::Leaf(after)) => before != after,
        (Some(_), _) => false,
    };
    let changed = new.iter().filter(|(path, (node, _))| differs(path, node)).map(|(path, _)| path.clone()).collect();
    let gone = old.keys().filter(|path| !new.contains_key(*path)).cloned().collect();
    (changed, gone)
}

fn without_nulls(mut nodes: Nodes) -> Nodes {
    loop {
        let before = nodes.len();
        nodes.retain(|_, (node, _)| *node != Node::Leaf(NULL.to_owned()));
        nodes = removed(&nodes, &Paths::new());
        if nodes.len() == before {
            return nodes;
        }
    }
}

fn flatten(value: &Value, ty: &Ty, path: Path, is_named: bool, nodes: &mut Nodes) {
    let below = |step: String| path.iter().cloned().chain([step]).collect::<Path>();
    let field = |name: &str| below(format!("f:{name}"));
    let is_leaf = matches!(ty, Ty::Text | Ty::AtomicList | Ty::Struct(_, true) | Ty::Map(_, true));
    let node = if is_leaf { Node::Leaf(value.to_string()) } else { Node::Inner };
    nodes.insert(path.clone(), (node, is_named));
    match (ty, value) {
        (Ty::Struct(fields, false), Value::Object(values)) => {
            values.iter().for_each(|(name, value)| flatten(value, &fields[name.as_str()], field(name), true, nodes));
        }
        (Ty::Map(ty, false), Value::Object(values)) => {
            values.iter().for_each(|(name, value)| flatten(value, ty, field(name), false, nodes));
        }
        (Ty::Set, Value::Array(items)) => {
            items.iter().for_each(|item| flatten(item, &Ty::Text, below(format!("v:{item}")), false, nodes));
        }
        (Ty::Keyed(fields), Value::Array(items)) => {
            let ty = Ty::Struct(keyed(fields), false);
            for item in items {
                flatten(item, &ty, below(format!("k:{{\"k\":{}}}", item["k"])), false, nodes);
            }
        }
        _ => {}
    }
}

fn keyed(fields: &BTreeMap<&'static str, Ty>) -> BTreeMap<&'static str, Ty> {
    fields.clone().into_iter().chain([("k", Ty::Text)]).collect()
}

fn spec_nodes(object: &Value, ty: &Ty) -> Nodes {
    let mut nodes = Nodes::new();
    if let Some(spec) = object.get("spec") {
        flatten(spec, ty, vec!["f:spec".to_owned()], true, &mut nodes);
    }
    nodes
}

/// What storing does: nulls and empty things go.
fn stored(value: &mut Value) -> bool {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| stored(value));
            !fields.is_empty()
        }
        Value::Array(items) => {
            items.retain_mut(stored);
            !items.is_empty()
        }
        _ => !value.is_null(),
    }
}

fn build(ty: &Ty, types: &mut Vec<Type>) -> TypeId {
    let object = |fields: &BTreeMap<&'static str, Ty>, atomic, types: &mut Vec<Type>| {
        let fields: Vec<_> = fields.iter().map(|(name, ty)| new_field(name, build(ty, types))).collect();
        Shape::Struct(Struct { fields: fields.into(), atomic, open: false })
    };
    let list = |item, list_type| Shape::List(List { item, item_pointer: false, list_type });
    let shape = match ty {
        Ty::Text => Shape::String,
        Ty::AtomicList => list(build(&Ty::Text, types), ListType::Atomic),
        Ty::Set => list(build(&Ty::Text, types), ListType::Set),
        Ty::Struct(fields, atomic) => object(fields, *atomic, types),
        Ty::Map(value, atomic) => Shape::Map(Map { value: build(value, types), atomic: *atomic }),
        Ty::Keyed(fields) => {
            let shape = object(&keyed(fields), false, types);
            list(push(shape, types), ListType::Map(vec!["k".into()].into()))
        }
    };
    push(shape, types)
}

fn push(shape: Shape, types: &mut Vec<Type>) -> TypeId {
    types.push(Type { name: "", go: "", description: "", default: None, shape });
    TypeId(types.len() as u32 - 1)
}

fn new_field(name: &'static str, ty: TypeId) -> Field {
    Field {
        name: name.into(),
        head: head(name),
        ty,
        pointer: true,
        omit_empty: true,
        omit_zero: false,
        required: false,
        published: Published::NOTHING,
    }
}

/// The whole object: a specification of this type, and metadata of which nothing is owned.
fn object_schema(spec: &Ty) -> (Schema, TypeId) {
    let mut types = Vec::new();
    let (text, json) = (push(Shape::String, &mut types), push(Shape::Json, &mut types));
    let managed = push(Shape::List(List { item: json, item_pointer: false, list_type: ListType::Atomic }), &mut types);
    let meta = vec![new_field("managedFields", managed), new_field("uid", text)];
    let meta = push(Shape::Struct(Struct { fields: meta.into(), atomic: false, open: false }), &mut types);
    let spec = build(spec, &mut types);
    let fields = [("apiVersion", text), ("kind", text), ("metadata", meta), ("spec", spec)];
    let fields: Vec<_> = fields.into_iter().map(|(name, ty)| new_field(name, ty)).collect();
    let root = push(Shape::Struct(Struct { fields: fields.into(), atomic: false, open: false }), &mut types);
    (Schema::new(types), root)
}

fn some_type() -> impl Strategy<Value = Ty> {
    let leaf = prop_oneof![3 => Just(Ty::Text), 1 => Just(Ty::AtomicList), 1 => Just(Ty::Set)];
    leaf.prop_recursive(3, 24, 3, |inner| {
        let fields = || prop::collection::btree_map(select(&NAMES[..]), inner.clone(), 1..=3);
        prop_oneof![
            4 => (fields(), prop::bool::weighted(0.15)).prop_map(|(fields, atomic)| Ty::Struct(fields, atomic)),
            2 => (inner.clone(), prop::bool::weighted(0.15)).prop_map(|(ty, atomic)| Ty::Map(Box::new(ty), atomic)),
            3 => fields().prop_map(Ty::Keyed),
        ]
    })
}

/// A value without nulls and without anything empty, or None.
fn some_value(ty: &Ty) -> BoxedStrategy<Option<Value>> {
    let texts = || select(vec!["x", "y", "z"]);
    let object = |fields: &BTreeMap<&'static str, Ty>| {
        let each: Vec<_> = fields
            .iter()
            .map(|(name, ty)| (Just(*name), prop::option::weighted(0.7, some_value(ty)).prop_map(Option::flatten)))
            .collect();
        each.prop_map(|fields| {
            let there = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
            Some(there.collect::<Object<_, _>>()).filter(|fields| !fields.is_empty())
        })
    };
    let array = |items: Vec<Value>| Some(items).filter(|items| !items.is_empty()).map(Value::Array);
    match ty {
        Ty::Text => texts().prop_map(|text| Some(json!(text))).boxed(),
        Ty::AtomicList => prop::collection::vec(texts(), 1..3).prop_map(|items| Some(json!(items))).boxed(),
        Ty::Set => prop::collection::btree_set(texts(), 0..3)
            .prop_map(move |items| array(items.into_iter().map(Value::from).collect()))
            .boxed(),
        Ty::Struct(fields, _) => object(fields).prop_map(|fields| fields.map(Value::Object)).boxed(),
        Ty::Map(value, _) => prop::collection::btree_map(select(&NAMES[..]), some_value(value), 0..3)
            .prop_map(|fields| {
                let there = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
                Some(there.collect::<Object<_, _>>()).filter(|fields| !fields.is_empty()).map(Value::Object)
            })
            .boxed(),
        Ty::Keyed(fields) => prop::collection::btree_map(texts(), object(fields), 0..3)
            .prop_map(move |items| {
                let item = |(key, fields): (&str, Option<Object<_, _>>)| {
                    let mut item = fields.unwrap_or_default();
                    item.insert("k".to_owned(), json!(key));
                    Value::Object(item)
                };
                array(items.into_iter().map(item).collect())
            })
            .boxed(),
    }
}

fn some_op(spec: &Ty) -> BoxedStrategy<Op> {
    let manager = || select(vec!["one", "two", "three"]);
    let spec = some_value(spec).prop_map(|spec| spec.unwrap_or(Value::Null)).boxed();
    prop_oneof![
        6 => (manager(), any::<bool>(), spec.clone()).prop_map(|(manager, force, spec)| Op::Apply { manager, force, spec }),
        3 => (manager(), spec.clone()).prop_map(|(manager, spec)| Op::Update { manager, spec }),
        3 => spec.prop_map(|spec| Op::Admit { spec }),
        1 => Just(Op::Forget),
    ]
    .boxed()
}

fn some_run() -> impl Strategy<Value = (Ty, Vec<Op>)> {
    let spec = prop::collection::btree_map(select(&NAMES[..]), some_type(), 1..=3).prop_map(|f| Ty::Struct(f, false));
    spec.prop_flat_map(|spec| {
        let ops = prop::collection::vec(some_op(&spec), 1..8);
        (Just(spec), ops)
    })
}

fn document(spec: &Value) -> Value {
    let mut document = json!({"apiVersion": "v1", "kind": "W"});
    if !spec.is_null() {
        document["spec"] = spec.clone();
    }
    document
}

fn real_owners(object: &Value) -> BTreeMap<(String, bool), Paths> {
    let managers = Managers::decode(object["metadata"].get("managedFields")).unwrap();
    let paths = managers.iter().map(|(_, owner)| {
        let set = owner.set.paths().iter().map(|path| path.iter().map(|step| step.encode()).collect()).collect();
        ((owner.manager.name.clone(), owner.manager.operation == Operation::Apply), set)
    });
    paths.collect()
}

fn check(spec: &Ty, ops: &[Op]) -> Result<(), TestCaseError> {
    let (schema, root) = object_schema(spec);
    let mut model = Model::default();
    let mut live: Option<Value> = None;
    for op in ops {
        let write = |manager| Write {
            ty: schema.get(root),
            api_version: "v1",
            kind: "W",
            subresource: "",
            manager,
            time: "2024-01-01T00:00:00Z",
            reset_fields: &[],
            versions: &OneVersion,
        };
        let mut object = match op {
            Op::Apply { manager, force, spec: config } => {
                let config = document(config);
                let on_conflict = if *force { OnConflict::Take } else { OnConflict::Refuse };
                let expected = model.apply(manager, *force, &spec_nodes(&config, spec));
                match write(manager).apply(live.as_ref(), &config, on_conflict) {
                    Ok(applied) => {
                        prop_assert!(expected.is_ok(), "expected conflicts {expected:?}");
                        prop_assert_eq!(applied.changed, live.as_ref() != Some(&applied.object));
                        applied.object
                    }
                    Err(error @ ApplyError::Conflicts(_)) => {
                        let causes = error.status().details.map(|details| details.causes).unwrap_or_default();
                        let fields: BTreeSet<_> = causes.iter().map(|cause| cause.field.clone()).collect();
                        prop_assert_eq!(Some(fields.len()), expected.err().map(|paths| paths.len()));
                        continue;
                    }
                    Err(error) => return Err(TestCaseError::fail(error.to_string())),
                }
            }
            Op::Update { manager, spec: new } => {
                let mut object = document(new);
                object["metadata"] = json!({"uid": "u"});
                model.update(manager, spec_nodes(&object, spec));
                write(manager).update(live.as_ref(), &mut object);
                object
            }
            Op::Admit { spec: set } => {
                let Some(mut object) = live.clone() else { continue };
                let added = write("any").apply(Some(&object), &document(set), OnConflict::Take);
                object["spec"] = added.map(|applied| applied.object["spec"].clone()).unwrap_or_default();
                if !stored(&mut object["spec"]) {
                    object.as_object_mut().unwrap().remove("spec");
                }
                model.live = Some(spec_nodes(&object, spec));
                object
            }
            Op::Forget => {
                let Some(mut object) = live.clone() else { continue };
                object["metadata"]["managedFields"] = json!([{}]);
                model.owners.clear();
                write("any").update(live.as_ref(), &mut object);
                object
            }
        };
        let managed = object["metadata"].get("managedFields").cloned();
        stored(&mut object);
        object["metadata"] = json!({"uid": "u"});
        if let Some(managed) = managed {
            object["metadata"]["managedFields"] = managed;
        }
        prop_assert_eq!(&spec_nodes(&object, spec), model.live.as_ref().unwrap(), "object after {:?}", op);
        prop_assert_eq!(&real_owners(&object), &model.owners, "owners after {:?}", op);
        live = Some(object);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn objects_and_owners_agree_with_plain_sets_of_paths((spec, ops) in some_run()) {
        check(&spec, &ops)?;
    }
}

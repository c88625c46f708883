//! A set of fields: which paths of an object somebody owns.

use std::collections::BTreeMap;
use std::fmt;

use super::atom::Form;
use super::element::Element;

/// A set of paths, kept as a tree. No part of the tree is empty, so equal sets have equal trees.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    entries: BTreeMap<Element, Entry>,
}

/// What a set holds at one path and below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// Whether the path itself is in the set.
    pub member: bool,
    /// The paths below it.
    pub children: FieldSet,
}

impl FieldSet {
    /// The set of no paths.
    pub fn new() -> Self {
        Self::default()
    }

    /// A set of paths whose steps are fields, written with dots: `spec.replicas`.
    pub fn of_fields<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(&path.split('.').map(Element::field).collect::<Vec<_>>());
        }
        set
    }

    /// Whether no path is in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds a path. The empty path is the whole object, which nobody owns.
    pub fn insert(&mut self, path: &[Element]) {
        let Some((last, way)) = path.split_last() else { return };
        let parent = way.iter().fold(self, |at, step| &mut at.entries.entry(step.clone()).or_default().children);
        parent.entries.entry(last.clone()).or_default().member = true;
    }

    /// Whether the path is in it.
    pub fn has(&self, path: &[Element]) -> bool {
        let Some((last, way)) = path.split_last() else { return false };
        let parent = way.iter().try_fold(self, |at, step| at.entries.get(step).map(|entry| &entry.children));
        parent.and_then(|at| at.entries.get(last)).is_some_and(|entry| entry.member)
    }

    /// What is held at one step and below it.
    pub fn get(&self, step: &Element) -> Option<&Entry> {
        self.entries.get(step)
    }

    /// The steps from here, in order.
    pub fn entries(&self) -> impl Iterator<Item = (&Element, &Entry)> {
        self.entries.iter()
    }

    /// The same, to change what is held there. Nothing may be left empty.
    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = (&Element, &mut Entry)> {
        self.entries.iter_mut()
    }

    /// Puts an entry at a step, if there is anything in it; what was there is kept.
    pub fn add(&mut self, step: Element, entry: Entry) {
        if entry.is_empty() {
            return;
        }
        let slot = self.entries.entry(step).or_default();
        slot.member |= entry.member;
        slot.children.unite(entry.children);
    }

    /// Adds all paths of another.
    pub fn unite(&mut self, other: Self) {
        if self.entries.is_empty() {
            *self = other;
            return;
        }
        for (step, entry) in other.entries {
            self.add(step, entry);
        }
    }

    /// Takes away the paths of another. A path stays if only its parent is in the other.
    pub fn subtract(&mut self, other: &Self) {
        if other.is_empty() {
            return;
        }
        self.entries.retain(|step, mine| {
            if let Some(theirs) = other.entries.get(step) {
                mine.member &= !theirs.member;
                mine.children.subtract(&theirs.children);
            }
            !mine.is_empty()
        });
    }

    /// All paths, in the order of messages: what is at a step before what is below any.
    pub fn paths(&self) -> Vec<Vec<Element>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    /// Paths in either.
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        all.unite(other.clone());
        all
    }

    /// Paths in both.
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| match theirs {
            None => Entry::default(),
            Some(theirs) => {
                Entry { member: mine.member && theirs.member, children: mine.children.intersection(&theirs.children) }
            }
        })
    }

    /// Paths of this set that are not in the other. A path stays if only its parent is in the other.
    pub fn difference(&self, other: &Self) -> Self {
        let mut left = self.clone();
        left.subtract(other);
        left
    }

    /// Paths of this set that are neither in the other nor below a path in the other.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(other, |mine, theirs| match theirs {
            None => mine.clone(),
            Some(theirs) if theirs.member => Entry::default(),
            Some(theirs) => {
                Entry { member: mine.member, children: mine.children.recursive_difference(&theirs.children) }
            }
        })
    }

    /// Paths with nothing of the set below them.
    pub fn leaves(&self) -> Self {
        self.combine(self, |mine, _| Entry {
            member: mine.member && mine.children.is_empty(),
            children: mine.children.leaves(),
        })
    }

    /// The set with every named field that has something below it. Such fields are usually left out, as a struct is
    /// there whenever one of its fields is; whoever takes fields away needs them.
    pub(super) fn with_named_fields(&self, form: Option<Form<'_>>) -> Self {
        let map = form.and_then(Form::map);
        let item = form.and_then(Form::list).map(|list| list.item);
        let mut all = Self::new();
        for (step, entry) in &self.entries {
            let (named, child) = match (step, &map) {
                (Element::Field(name), Some(map)) => (map.field(name).is_some(), map.child(name)),
                (Element::Key(_), _) => (false, item),
                _ => (false, None),
            };
            let member = entry.member || (named && !entry.children.is_empty());
            all.entries.insert(step.clone(), Entry { member, children: entry.children.with_named_fields(child) });
        }
        all
    }

    /// A new set of what is made of each entry and its counterpart, without what becomes empty.
    fn combine(&self, other: &Self, make: impl Fn(&Entry, Option<&Entry>) -> Entry) -> Self {
        let made = self.entries.iter().map(|(step, mine)| (step, make(mine, other.entries.get(step))));
        Self {
            entries: made.filter(|(_, entry)| !entry.is_empty()).map(|(step, entry)| (step.clone(), entry)).collect(),
        }
    }

    fn collect(&self, way: &mut Vec<Element>, paths: &mut Vec<Vec<Element>>) {
        for step in self.entries.iter().filter(|(_, entry)| entry.member).map(|(step, _)| step) {
            paths.push(way.iter().chain([step]).cloned().collect());
        }
        for (step, entry) in &self.entries {
            way.push(step.clone());
            entry.children.collect(way, paths);
            way.pop();
        }
    }
}

impl Entry {
    /// Only the path itself.
    pub fn leaf() -> Self {
        Self { member: true, children: FieldSet::new() }
    }

    /// Whether it holds no path.
    pub fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

/// One path per line.
impl fmt::Display for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.paths().iter().map(|path| path_text(path)).collect();
        f.write_str(&lines.join("\n"))
    }
}

/// A path as messages show it: `.spec.ports[port=80].name`.
pub fn path_text(path: &[Element]) -> String {
    path.iter().map(Element::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(paths: &[&str]) -> FieldSet {
        FieldSet::of_fields(paths.iter().copied())
    }

    #[test]
    fn sets_combine_by_path() {
        let (a, b) = (set(&["x", "x.y", "x.z.w", "q"]), set(&["x.y", "x.z", "r"]));
        assert_eq!(a.union(&b), set(&["x", "x.y", "x.z", "x.z.w", "q", "r"]));
        assert_eq!(a.intersection(&b), set(&["x.y"]));
        assert_eq!(a.difference(&b), set(&["x", "x.z.w", "q"]));
        assert_eq!(a.recursive_difference(&b), set(&["x", "q"]));
        assert_eq!(a.leaves(), set(&["x.y", "x.z.w", "q"]));
        assert_eq!(a.difference(&a), FieldSet::new());
        assert!(set(&[]).is_empty() && !a.is_empty());
    }

    #[test]
    fn the_whole_object_is_never_a_member() {
        let mut all = FieldSet::new();
        all.insert(&[]);
        assert!(all.is_empty() && !all.has(&[]));
    }

    #[test]
    fn paths_are_listed_level_by_level() {
        let all = set(&["b.c", "a", "b", "b.a.x"]);
        assert_eq!(all.to_string(), ".a\n.b\n.b.c\n.b.a.x");
        assert!(all.has(&[Element::field("b"), Element::field("c")]));
        assert!(!all.has(&[Element::field("b"), Element::field("a")]));
    }
}

//! Whether one type may stand for another, and what open types turn out to be.

use std::sync::Arc;

use super::types::Type;

/// What the open types of an expression have been found to be.
#[derive(Debug, Default)]
pub(super) struct Found {
    types: Vec<Option<Type>>,
    /// What was there before each change, so that a try can be undone.
    changes: Vec<(usize, Option<Type>)>,
}

impl Found {
    /// A type yet to be found.
    pub(super) fn fresh(&mut self) -> Type {
        self.types.push(None);
        Type::Param(self.types.len() - 1)
    }

    /// Whether the pairs agree. What is found on the way is kept only if they all do.
    pub(super) fn assignable<'a>(&mut self, pairs: impl IntoIterator<Item = (&'a Type, &'a Type)>) -> bool {
        let before = self.changes.len();
        let agree = pairs.into_iter().all(|(a, b)| self.agree(a, b));
        if !agree {
            while self.changes.len() > before {
                if let Some((place, old)) = self.changes.pop() {
                    self.types[place] = old;
                }
            }
        }
        agree
    }

    /// The type with all that was found put in; what is still open becomes dyn if this is final.
    pub(super) fn resolved(&self, ty: &Type, last: bool) -> Type {
        match ty {
            Type::Param(place) => match self.get(*place) {
                Some(found) => self.resolved(&found.clone(), last),
                None if last => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(item) => Type::list(self.resolved(item, last)),
            Type::Optional(inner) => Type::optional(self.resolved(inner, last)),
            Type::Map(pair) => Type::map(self.resolved(&pair.0, last), self.resolved(&pair.1, last)),
            Type::Type(inner) => Type::Type(Arc::new(self.resolved(inner, last))),
            other => other.clone(),
        }
    }

    /// A signature's type with its own open types replaced by those from `base` on.
    pub(super) fn instance(&self, ty: &Type, base: usize) -> Type {
        match ty {
            Type::Param(place) => Type::Param(base + place),
            Type::List(item) => Type::list(self.instance(item, base)),
            Type::Optional(inner) => Type::optional(self.instance(inner, base)),
            Type::Map(pair) => Type::map(self.instance(&pair.0, base), self.instance(&pair.1, base)),
            Type::Type(inner) => Type::Type(Arc::new(self.instance(inner, base))),
            other => other.clone(),
        }
    }

    /// Room for the open types of a signature; where they begin.
    pub(super) fn room(&mut self, count: usize) -> usize {
        let base = self.types.len();
        self.types.resize(base + count, None);
        base
    }

    fn get(&self, place: usize) -> Option<&Type> {
        self.types.get(place).and_then(Option::as_ref)
    }

    fn set(&mut self, place: usize, ty: Type) {
        let old = self.types[place].replace(ty);
        self.changes.push((place, old));
    }

    fn agree(&mut self, a: &Type, b: &Type) -> bool {
        if let Type::Param(place) = b {
            let (fits, known) = self.stands_for(a, *place);
            if fits || known {
                return fits;
            }
        }
        if let Type::Param(place) = a {
            return self.stands_for(b, *place).0;
        }
        if a.is_dyn_or_error() || b.is_dyn_or_error() {
            return true;
        }
        match (a, b) {
            (Type::Null, other) | (other, Type::Null) => other.is_nullable(),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.agree(a, b),
            (Type::Map(a), Type::Map(b)) => self.agree(&a.0, &b.0) && self.agree(&a.1, &b.1),
            _ => a == b,
        }
    }

    /// Whether the type may stand for the open one, and whether that was known already.
    fn stands_for(&mut self, ty: &Type, place: usize) -> (bool, bool) {
        if *ty == Type::Param(place) {
            return (true, true);
        }
        if let Some(found) = self.get(place).cloned() {
            if *ty == found {
                return (true, true);
            }
            if !self.agree(ty, &found) {
                return (false, true);
            }
            let general = more_general(ty, &found).clone();
            if !self.occurs(place, &general) {
                self.set(place, general);
            }
            return (true, true);
        }
        if self.occurs(place, ty) {
            return (false, false);
        }
        self.set(place, ty.clone());
        (true, false)
    }

    fn occurs(&self, place: usize, ty: &Type) -> bool {
        match ty {
            Type::Param(other) => *other == place || self.get(*other).is_some_and(|found| self.occurs(place, found)),
            Type::List(inner) | Type::Optional(inner) | Type::Type(inner) => self.occurs(place, inner),
            Type::Map(pair) => self.occurs(place, &pair.0) || self.occurs(place, &pair.1),
            _ => false,
        }
    }
}

/// The more general of two types that agree.
pub(super) fn more_general<'a>(a: &'a Type, b: &'a Type) -> &'a Type {
    if less_specific(a, b) { a } else { b }
}

fn less_specific(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Param(_), _) => true,
        (_, Type::Dyn | Type::Param(_)) => false,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => less_specific(a, b),
        (Type::Map(a), Type::Map(b)) => less_specific(&a.0, &b.0) && less_specific(&a.1, &b.1),
        (Type::Type(_), Type::Type(_)) => true,
        _ => a == b,
    }
}

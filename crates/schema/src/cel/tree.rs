//! An expression as it was written, macros expanded. Nodes are kept in one list and name each other by their place in it.

/// The place of a node in its tree.
pub(super) type Id = usize;

/// A whole expression.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) expr: Expr,
    /// Where it stands in the text, in bytes.
    pub(super) offset: usize,
}

#[derive(Debug, Clone)]
pub(super) enum Expr {
    Literal(Literal),
    Ident(String),
    Select {
        operand: Id,
        field: String,
        test: bool,
    },
    Call {
        function: String,
        target: Option<Id>,
        args: Vec<Id>,
    },
    /// Items, each with whether it is to be left out if it is absent.
    List(Vec<(Id, bool)>),
    /// Keys and values; optional as above.
    Map(Vec<(Id, Id, bool)>),
    /// A value built by the name of its type.
    Struct {
        name: String,
        fields: Vec<(String, Id, bool, usize)>,
    },
    Loop(Box<Loop>),
}

/// What `all`, `exists`, `map` and the others turn into.
#[derive(Debug, Clone)]
pub(super) struct Loop {
    pub(super) range: Id,
    pub(super) first: String,
    pub(super) second: Option<String>,
    pub(super) accumulator: String,
    pub(super) init: Id,
    pub(super) condition: Id,
    pub(super) step: Id,
    pub(super) result: Id,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
}

impl Tree {
    pub(super) fn push(&mut self, expr: Expr, offset: usize) -> Id {
        self.nodes.push(Node { expr, offset });
        self.nodes.len() - 1
    }

    /// The dotted name that a chain of selections is, if it is one.
    pub(super) fn qualified(&self, id: Id) -> Option<String> {
        match &self.nodes[id].expr {
            Expr::Ident(name) => Some(name.clone()),
            Expr::Select { operand, field, test: false } => Some(format!("{}.{field}", self.qualified(*operand)?)),
            _ => None,
        }
    }

    /// A second node like this one, with parts of its own.
    pub(super) fn copy(&mut self, id: Id) -> Id {
        let Node { mut expr, offset } = self.nodes[id].clone();
        match &mut expr {
            Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Select { operand, .. } => *operand = self.copy(*operand),
            Expr::Call { target, args, .. } => {
                if let Some(target) = target {
                    *target = self.copy(*target);
                }
                args.iter_mut().for_each(|arg| *arg = self.copy(*arg));
            }
            Expr::List(items) => items.iter_mut().for_each(|(item, _)| *item = self.copy(*item)),
            Expr::Map(entries) => entries.iter_mut().for_each(|(key, value, _)| {
                *key = self.copy(*key);
                *value = self.copy(*value);
            }),
            Expr::Struct { fields, .. } => fields.iter_mut().for_each(|field| field.1 = self.copy(field.1)),
            Expr::Loop(inner) => {
                for part in
                    [&mut inner.range, &mut inner.init, &mut inner.condition, &mut inner.step, &mut inner.result]
                {
                    *part = self.copy(*part);
                }
            }
        }
        self.push(expr, offset)
    }
}

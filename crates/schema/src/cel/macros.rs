//! Calls that stand for something longer.

use super::tree::{Expr, Id, Literal, Loop, Tree};

/// The name of what a loop gathers; no expression can write it.
pub(super) const ACCUMULATOR: &str = "@result";
const SORTED: &str = "@__sortBy_input__";

/// What the call stands for, or what is wrong with it and where; None if it is no macro.
pub(super) fn expand(
    tree: &mut Tree,
    function: &str,
    target: Option<Id>,
    args: &[Id],
    offset: usize,
) -> Option<Result<Id, (usize, String)>> {
    let mut macros = Expansion { tree, offset };
    match (target, function, args) {
        (None, "has", [field]) => Some(macros.has(*field)),
        (Some(target), "all" | "exists" | "exists_one" | "filter", [name, test]) => {
            Some(macros.one_name(function, target, *name, *test))
        }
        (Some(target), "map", [name, given @ ..]) if matches!(given.len(), 1 | 2) => {
            Some(macros.map(target, *name, given))
        }
        (Some(target), "all" | "exists" | "exists_one" | "existsOne", [first, second, test]) => {
            Some(macros.two_names(function, target, [*first, *second], &[*test]))
        }
        (Some(target), "transformList" | "transformMap" | "transformMapEntry", [first, second, given @ ..])
            if matches!(given.len(), 1 | 2) =>
        {
            Some(macros.two_names(function, target, [*first, *second], given))
        }
        (Some(target), "optMap" | "optFlatMap", [name, given]) => {
            Some(macros.of_optional(function, target, *name, *given))
        }
        (Some(target), "sortBy", [name, key]) => Some(macros.sort_by(target, *name, *key)),
        _ => None,
    }
}

struct Expansion<'a> {
    tree: &'a mut Tree,
    offset: usize,
}

impl Expansion<'_> {
    fn push(&mut self, expr: Expr) -> Id {
        self.tree.push(expr, self.offset)
    }

    fn call(&mut self, function: &str, args: &[Id]) -> Id {
        self.push(Expr::Call { function: function.to_owned(), target: None, args: args.to_vec() })
    }

    fn on(&mut self, target: Id, function: &str, args: &[Id]) -> Id {
        self.push(Expr::Call { function: function.to_owned(), target: Some(target), args: args.to_vec() })
    }

    fn ident(&mut self, name: &str) -> Id {
        self.push(Expr::Ident(name.to_owned()))
    }

    fn gathered(&mut self) -> Id {
        self.ident(ACCUMULATOR)
    }

    fn literal(&mut self, literal: Literal) -> Id {
        self.push(Expr::Literal(literal))
    }

    fn has(&mut self, field: Id) -> Result<Id, (usize, String)> {
        match self.tree.nodes[field].expr.clone() {
            Expr::Select { operand, field, test: false } => Ok(self.push(Expr::Select { operand, field, test: true })),
            _ => Err((self.tree.nodes[field].offset, "invalid argument to has() macro".to_owned())),
        }
    }

    fn name(&self, id: Id, wrong: &str) -> Result<String, (usize, String)> {
        let at = self.tree.nodes[id].offset;
        match &self.tree.nodes[id].expr {
            Expr::Ident(name) if name == ACCUMULATOR || name == "__result__" => {
                Err((at, "iteration variable overwrites accumulator variable".to_owned()))
            }
            Expr::Ident(name) => Ok(name.clone()),
            _ => Err((at, wrong.to_owned())),
        }
    }

    fn one_name(&mut self, function: &str, target: Id, name: Id, test: Id) -> Result<Id, (usize, String)> {
        let first = self.name(name, "argument must be a simple name")?;
        let as_item = if function == "filter" { Some(name) } else { None };
        self.quantifier(function, target, (first, None), test, as_item)
    }

    fn quantifier(
        &mut self,
        function: &str,
        range: Id,
        (first, second): (String, Option<String>),
        test: Id,
        item: Option<Id>,
    ) -> Result<Id, (usize, String)> {
        let (init, condition, step, result);
        match function {
            "all" => {
                init = self.literal(Literal::Bool(true));
                let seen = self.gathered();
                condition = self.call("@not_strictly_false", &[seen]);
                let seen = self.gathered();
                step = self.call("_&&_", &[seen, test]);
                result = self.gathered();
            }
            "exists" => {
                init = self.literal(Literal::Bool(false));
                let seen = self.gathered();
                let not = self.call("!_", &[seen]);
                condition = self.call("@not_strictly_false", &[not]);
                let seen = self.gathered();
                step = self.call("_||_", &[seen, test]);
                result = self.gathered();
            }
            "filter" => {
                init = self.push(Expr::List(Vec::new()));
                condition = self.literal(Literal::Bool(true));
                let seen = self.gathered();
                let item = item.unwrap_or(seen);
                let one = self.push(Expr::List(vec![(item, false)]));
                let more = self.call("_+_", &[seen, one]);
                let seen = self.gathered();
                step = self.call("_?_:_", &[test, more, seen]);
                result = self.gathered();
            }
            _ => {
                init = self.literal(Literal::Int(0));
                condition = self.literal(Literal::Bool(true));
                let seen = self.gathered();
                let one = self.literal(Literal::Int(1));
                let more = self.call("_+_", &[seen, one]);
                let seen = self.gathered();
                step = self.call("_?_:_", &[test, more, seen]);
                let seen = self.gathered();
                let one = self.literal(Literal::Int(1));
                result = self.call("_==_", &[seen, one]);
            }
        }
        Ok(self.looped(range, (first, second), init, condition, step, result))
    }

    fn looped(
        &mut self,
        range: Id,
        (first, second): (String, Option<String>),
        init: Id,
        condition: Id,
        step: Id,
        result: Id,
    ) -> Id {
        let accumulator = ACCUMULATOR.to_owned();
        self.push(Expr::Loop(Box::new(Loop { range, first, second, accumulator, init, condition, step, result })))
    }

    /// A list that grows by what is given for each, filtered first if two things are given.
    fn map(&mut self, range: Id, name: Id, given: &[Id]) -> Result<Id, (usize, String)> {
        let first = self.name(name, "argument is not an identifier")?;
        let init = self.push(Expr::List(Vec::new()));
        let condition = self.literal(Literal::Bool(true));
        let seen = self.gathered();
        let one = self.push(Expr::List(vec![(given[given.len() - 1], false)]));
        let more = self.call("_+_", &[seen, one]);
        let step = self.filtered(more, given);
        let result = self.gathered();
        Ok(self.looped(range, (first, None), init, condition, step, result))
    }

    fn filtered(&mut self, step: Id, given: &[Id]) -> Id {
        match given {
            [test, _] => {
                let seen = self.gathered();
                self.call("_?_:_", &[*test, step, seen])
            }
            _ => step,
        }
    }

    fn two_names(&mut self, function: &str, range: Id, names: [Id; 2], given: &[Id]) -> Result<Id, (usize, String)> {
        let [first, second] = [
            self.name(names[0], "argument must be a simple name"),
            self.name(names[1], "argument must be a simple name"),
        ];
        let (first, second) = (first?, second?);
        if first == second {
            return Err((self.tree.nodes[names[1]].offset, format!("duplicate variable name: {first}")));
        }
        if !function.starts_with("transform") {
            return self.quantifier(function, range, (first, Some(second)), given[0], None);
        }
        let init = match function {
            "transformList" => self.push(Expr::List(Vec::new())),
            _ => self.push(Expr::Map(Vec::new())),
        };
        let condition = self.literal(Literal::Bool(true));
        let transform = given[given.len() - 1];
        let seen = self.gathered();
        let step = match function {
            "transformList" => {
                let one = self.push(Expr::List(vec![(transform, false)]));
                self.call("_+_", &[seen, one])
            }
            "transformMap" => {
                let key = self.ident(&first);
                self.call("cel.@mapInsert", &[seen, key, transform])
            }
            _ => self.call("cel.@mapInsert", &[seen, transform]),
        };
        let step = self.filtered(step, given);
        let result = self.gathered();
        Ok(self.looped(range, (first, Some(second)), init, condition, step, result))
    }

    /// A name for a value: a loop over nothing, whose gathered value it is.
    fn bound(&mut self, name: String, value: Id, result: Id) -> Id {
        let range = self.push(Expr::List(Vec::new()));
        let condition = self.literal(Literal::Bool(false));
        let step = self.ident(&name);
        let first = "#unused".to_owned();
        self.push(Expr::Loop(Box::new(Loop {
            range,
            first,
            second: None,
            accumulator: name,
            init: value,
            condition,
            step,
            result,
        })))
    }

    fn of_optional(&mut self, function: &str, target: Id, name: Id, given: Id) -> Result<Id, (usize, String)> {
        let at = self.tree.nodes[name].offset;
        let Expr::Ident(name) = self.tree.nodes[name].expr.clone() else {
            return Err((at, format!("{function}() variable name must be a simple identifier")));
        };
        let has = self.on(target, "hasValue", &[]);
        let again = self.tree.copy(target);
        let value = self.on(again, "value", &[]);
        let mut inner = self.bound(name, value, given);
        if function == "optMap" {
            inner = self.call("optional.of", &[inner]);
        }
        let none = self.call("optional.none", &[]);
        Ok(self.call("_?_:_", &[has, inner, none]))
    }

    fn sort_by(&mut self, target: Id, name: Id, key: Id) -> Result<Id, (usize, String)> {
        let node = &self.tree.nodes[target];
        if matches!(node.expr, Expr::Literal(_) | Expr::Map(_) | Expr::Struct { .. }) {
            let wrong = "sortBy can only be applied to a list, identifier, comprehension, call or select expression";
            return Err((node.offset, wrong.to_owned()));
        }
        let range = self.ident(SORTED);
        let keys = self.map(range, name, &[key])?;
        let list = self.ident(SORTED);
        let sorted = self.on(list, "@sortByAssociatedKeys", &[keys]);
        Ok(self.bound(SORTED.to_owned(), target, sorted))
    }
}

//! The grammar. A text that it can't read gives None: what is wrong is then asked of a parser that knows the words for it.

use super::macros;
use super::token::{Token, tokens};
use super::tree::{Expr, Id, Literal, Tree};

/// How deep expressions may be nested. As cel-go.
pub(super) const DEPTH_MAX: usize = 250;

/// Why a text is no expression.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It can't be read.
    Syntax,
    /// It is nested too deep.
    Depth,
    /// A macro is used wrongly: where, and how.
    Macro(usize, String),
}

/// The tree of a text and its root.
pub(super) fn parse(text: &str) -> Result<(Tree, Id), Refusal> {
    let tokens = tokens(text).ok_or(Refusal::Syntax)?;
    let mut parser = Parser { tokens, at: 0, tree: Tree::default(), depths: Vec::new(), depth: 0 };
    let root = parser.expression()?;
    if parser.peek() != &Token::End {
        return Err(Refusal::Syntax);
    }
    Ok((parser.tree, root))
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    tree: Tree,
    /// How deep the tree below each node is.
    depths: Vec<usize>,
    depth: usize,
}

type Parsed<T> = Result<T, Refusal>;

/// Binary operators by how tightly they bind, loosest first.
const LEVELS: &[&[(&str, &str)]] = &[
    &[("||", "_||_")],
    &[("&&", "_&&_")],
    &[("<", "_<_"), ("<=", "_<=_"), (">=", "_>=_"), (">", "_>_"), ("==", "_==_"), ("!=", "_!=_"), ("in", "@in")],
    &[("+", "_+_"), ("-", "_-_")],
    &[("*", "_*_"), ("/", "_/_"), ("%", "_%_")],
];

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].0
    }

    fn offset(&self) -> usize {
        self.tokens[self.at].1
    }

    fn sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Token::Sign(here) if *here == sign);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.sign(sign) { Ok(()) } else { Err(Refusal::Syntax) }
    }

    fn push(&mut self, expr: Expr, offset: usize) -> Parsed<Id> {
        let id = self.tree.push(expr, offset);
        self.measure(id)?;
        Ok(id)
    }

    /// Notes how deep the nodes that were added are; children always come before their parents.
    fn measure(&mut self, id: Id) -> Parsed<()> {
        for next in self.depths.len()..=id {
            let below = |id: &Id| self.depths[*id];
            let deepest = match &self.tree.nodes[next].expr {
                Expr::Literal(_) | Expr::Ident(_) => 0,
                Expr::Select { operand, .. } => below(operand),
                Expr::Call { target, args, .. } => target.iter().chain(args).map(below).max().unwrap_or(0),
                Expr::List(items) => items.iter().map(|(item, _)| below(item)).max().unwrap_or(0),
                Expr::Map(entries) => {
                    entries.iter().map(|(key, value, _)| below(key).max(below(value))).max().unwrap_or(0)
                }
                Expr::Struct { fields, .. } => fields.iter().map(|field| below(&field.1)).max().unwrap_or(0),
                Expr::Loop(parts) => [parts.range, parts.init, parts.condition, parts.step, parts.result]
                    .iter()
                    .map(below)
                    .max()
                    .unwrap_or(0),
            };
            if deepest >= DEPTH_MAX {
                return Err(Refusal::Depth);
            }
            self.depths.push(deepest + 1);
        }
        Ok(())
    }

    fn expression(&mut self) -> Parsed<Id> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Refusal::Depth);
        }
        let condition = self.binary(0)?;
        let offset = self.offset();
        let found = if self.sign("?") {
            let yes = self.binary(0)?;
            self.expect(":")?;
            let no = self.expression()?;
            self.call("_?_:_", None, vec![condition, yes, no], offset)?
        } else {
            condition
        };
        self.depth -= 1;
        Ok(found)
    }

    fn call(&mut self, function: &str, target: Option<Id>, args: Vec<Id>, offset: usize) -> Parsed<Id> {
        self.push(Expr::Call { function: function.to_owned(), target, args }, offset)
    }

    /// Operators that bind at least as tightly as this level.
    fn binary(&mut self, level: usize) -> Parsed<Id> {
        let mut left = self.unary()?;
        let mut bound = LEVELS.len();
        loop {
            let offset = self.offset();
            let Some((here, function)) = self.operator().filter(|(here, _)| *here >= level && *here <= bound) else {
                return Ok(left);
            };
            self.at += 1;
            let right = self.binary(here + 1)?;
            // A chain of `&&` or `||` is one call of many arguments, so that it is not deep.
            if here < 2 {
                let mut chain = vec![left, right];
                while self.operator().is_some_and(|(next, _)| next == here) {
                    self.at += 1;
                    chain.push(self.binary(here + 1)?);
                }
                left = self.call(function, None, chain, offset)?;
            } else {
                left = self.call(function, None, vec![left, right], offset)?;
            }
            bound = here;
        }
    }

    /// The operator that comes next, and how tightly it binds.
    fn operator(&self) -> Option<(usize, &'static str)> {
        let Token::Sign(sign) = self.peek() else { return None };
        LEVELS.iter().enumerate().find_map(|(level, operators)| {
            operators.iter().find(|(known, _)| known == sign).map(|(_, function)| (level, *function))
        })
    }

    fn unary(&mut self) -> Parsed<Id> {
        let offset = self.offset();
        for (sign, function) in [("!", "!_"), ("-", "-_")] {
            let mut count = 0;
            while self.sign(sign) {
                count += 1;
            }
            if count == 0 {
                continue;
            }
            // A minus before a number belongs to the number.
            if sign == "-" && count == 1 {
                let number = match self.peek() {
                    Token::Literal(Literal::Int(value)) => Some(Literal::Int(value.wrapping_neg())),
                    Token::Literal(Literal::Double(value)) => Some(Literal::Double(-value)),
                    _ => None,
                };
                if let Some(number) = number {
                    self.at += 1;
                    let id = self.push(Expr::Literal(number), offset)?;
                    return self.member(id);
                }
            }
            let inner = self.primary()?;
            let inner = self.member(inner)?;
            // Two of them are none.
            return if count % 2 == 0 { Ok(inner) } else { self.call(function, None, vec![inner], offset) };
        }
        let id = self.primary()?;
        self.member(id)
    }

    fn member(&mut self, mut id: Id) -> Parsed<Id> {
        loop {
            let offset = self.offset();
            if self.sign(".") {
                let optional = self.sign("?");
                let (name, quoted) = self.field()?;
                let open = self.offset();
                if optional {
                    let field = self.push(Expr::Literal(Literal::String(name)), offset)?;
                    id = self.call("_?._", None, vec![id, field], offset)?;
                } else if !quoted && self.sign("(") {
                    let args = self.list_of_expressions(")")?;
                    id = self.called(name, Some(id), args, open)?;
                } else {
                    id = self.push(Expr::Select { operand: id, field: name, test: false }, offset)?;
                }
            } else if self.sign("[") {
                let optional = self.sign("?");
                let index = self.expression()?;
                self.expect("]")?;
                id = self.call(if optional { "_[?_]" } else { "_[_]" }, None, vec![id, index], offset)?;
            } else {
                return Ok(id);
            }
        }
    }

    fn field(&mut self) -> Parsed<(String, bool)> {
        let found = match self.peek() {
            Token::Ident(name) => (name.clone(), false),
            Token::Quoted(name) => (name.clone(), true),
            _ => return Err(Refusal::Syntax),
        };
        self.at += 1;
        Ok(found)
    }

    fn list_of_expressions(&mut self, end: &str) -> Parsed<Vec<Id>> {
        let mut found = Vec::new();
        while !self.sign(end) {
            if !found.is_empty() {
                self.expect(",")?;
            }
            found.push(self.expression()?);
        }
        Ok(found)
    }

    /// A call by name, which may be a macro.
    fn called(&mut self, function: String, target: Option<Id>, args: Vec<Id>, offset: usize) -> Parsed<Id> {
        match macros::expand(&mut self.tree, &function, target, &args, offset) {
            Some(Ok(id)) => {
                self.measure(id)?;
                Ok(id)
            }
            Some(Err((at, message))) => Err(Refusal::Macro(at, message)),
            None => self.call(&function, target, args, offset),
        }
    }

    fn primary(&mut self) -> Parsed<Id> {
        let offset = self.offset();
        match self.peek().clone() {
            Token::Literal(literal) => {
                if literal == Literal::Int(i64::MIN) {
                    return Err(Refusal::Syntax);
                }
                self.at += 1;
                self.push(Expr::Literal(literal), offset)
            }
            Token::Sign("(") => {
                self.at += 1;
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Sign("[") => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.sign("]") {
                    let optional = self.sign("?");
                    items.push((self.expression()?, optional));
                    if !self.sign(",") && !matches!(self.peek(), Token::Sign("]")) {
                        return Err(Refusal::Syntax);
                    }
                }
                self.push(Expr::List(items), offset)
            }
            Token::Sign("{") => {
                self.at += 1;
                let mut entries = Vec::new();
                while !self.sign("}") {
                    let optional = self.sign("?");
                    let key = self.expression()?;
                    self.expect(":")?;
                    entries.push((key, self.expression()?, optional));
                    if !self.sign(",") && !matches!(self.peek(), Token::Sign("}")) {
                        return Err(Refusal::Syntax);
                    }
                }
                self.push(Expr::Map(entries), offset)
            }
            Token::Sign(".") => {
                self.at += 1;
                self.name(offset)
            }
            Token::Ident(_) => self.name(offset),
            _ => Err(Refusal::Syntax),
        }
    }

    fn name(&mut self, offset: usize) -> Parsed<Id> {
        let Token::Ident(name) = self.peek().clone() else { return Err(Refusal::Syntax) };
        if super::RESERVED.contains(&name.as_str()) {
            return Err(Refusal::Syntax);
        }
        self.at += 1;
        let open = self.offset();
        if self.sign("(") {
            let args = self.list_of_expressions(")")?;
            return self.called(name, None, args, open);
        }
        if let Some(built) = self.built(&name)? {
            return Ok(built);
        }
        self.push(Expr::Ident(name), offset)
    }

    /// `a.b.Name{field: value}`, if the names from here on end in a brace.
    fn built(&mut self, first: &str) -> Parsed<Option<Id>> {
        let (start, mut name) = (self.at, first.to_owned());
        while self.sign(".") {
            let Token::Ident(next) = self.peek() else { break };
            name = format!("{name}.{next}");
            self.at += 1;
        }
        let offset = self.offset();
        if !self.sign("{") {
            self.at = start;
            return Ok(None);
        }
        let mut fields = Vec::new();
        while !self.sign("}") {
            let optional = self.sign("?");
            let (field, _) = self.field()?;
            let at = self.offset();
            self.expect(":")?;
            fields.push((field, self.expression()?, optional, at));
            if !self.sign(",") && !matches!(self.peek(), Token::Sign("}")) {
                return Err(Refusal::Syntax);
            }
        }
        self.push(Expr::Struct { name, fields }, offset).map(Some)
    }
}

//! The grammar of label selectors, and the words for what breaks it.
//!
//! ```text
//! selector    = [ requirement { "," requirement } ]
//! requirement = [ "!" ] key [ ( "=" | "==" | "!=" | ">" | "<" ) value | ( "in" | "notin" ) "(" values ")" ]
//! ```
//! `in` and `notin` are operators only where an operator can stand; elsewhere they are names like any other.

use std::collections::BTreeSet;

use super::{Operator, Requirement, SelectorError, key_error};
use crate::field::Path;

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    Parser { tokens: scan(text), position: 0 }.parse()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    End,
    Identifier,
    Not,
    Open,
    Close,
    Comma,
    /// Only where an operator can stand; see [`Parser::peek`].
    Operator(Operator),
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    literal: &'a str,
}

const END: Token<'static> = Token { kind: Kind::End, literal: "" };

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    position: usize,
}

impl<'a> Parser<'a> {
    fn parse(mut self) -> Result<Vec<Requirement>, SelectorError> {
        let mut requirements = Vec::new();
        loop {
            let token = self.peek();
            match token.kind {
                Kind::Identifier | Kind::Not => requirements.push(self.requirement().map_err(in_requirement)?),
                Kind::End => return Ok(requirements),
                _ => return found(token, ", expected: !, identifier, or 'end of string'"),
            }
            let after = self.next();
            match after.kind {
                Kind::End => return Ok(requirements),
                Kind::Comma if matches!(self.peek().kind, Kind::Identifier | Kind::Not) => {}
                Kind::Comma => return found(self.peek(), ", expected: identifier after ','"),
                _ => return found(after, ", expected: ',' or 'end of string'"),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let mut token = self.next();
        let negated = token.kind == Kind::Not;
        if negated {
            token = self.next();
        }
        if token.kind != Kind::Identifier {
            return found(token, ", expected: identifier");
        }
        let key = token.literal;
        if let Some(error) = key_error(key, &Path::nil()) {
            return Err(SelectorError::new(error.to_string()));
        }
        // What follows "!key" is for the caller to refuse.
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new(), &Path::nil());
        }
        if matches!(self.peek().kind, Kind::End | Kind::Comma) {
            return Requirement::new(key, Operator::Exists, Vec::new(), &Path::nil());
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => BTreeSet::from([self.exact_value()?]),
        };
        Requirement::new(key, operator, values.into_iter().map(str::to_owned).collect(), &Path::nil())
    }

    fn operator(&mut self) -> Result<Operator, SelectorError> {
        let token = self.next_raw();
        match token.kind {
            Kind::Operator(operator) => Ok(operator),
            _ => found(token, ", expected: in, notin, =, ==, !=, gt, lt"),
        }
    }

    fn exact_value(&mut self) -> Result<&'a str, SelectorError> {
        if matches!(self.peek().kind, Kind::End | Kind::Comma) {
            return Ok("");
        }
        let token = self.next();
        match token.kind {
            Kind::Identifier => Ok(token.literal),
            _ => found(token, ", expected: identifier"),
        }
    }

    fn values(&mut self) -> Result<BTreeSet<&'a str>, SelectorError> {
        let open = self.next();
        if open.kind != Kind::Open {
            return found(open, " expected: '('");
        }
        let first = self.peek();
        match first.kind {
            Kind::Identifier | Kind::Comma => self.value_list(),
            Kind::Close => {
                self.next();
                Ok(BTreeSet::from([""]))
            }
            _ => found(first, ", expected: ',', ')' or identifier"),
        }
    }

    /// Values up to the closing parenthesis. Nothing between two commas is the empty value.
    fn value_list(&mut self) -> Result<BTreeSet<&'a str>, SelectorError> {
        let mut values = BTreeSet::new();
        loop {
            let token = self.next();
            match token.kind {
                Kind::Identifier => {
                    values.insert(token.literal);
                    if !matches!(self.peek().kind, Kind::Comma | Kind::Close) {
                        return found(self.peek(), ", expected: ',' or ')'");
                    }
                }
                Kind::Comma => {
                    if values.is_empty() || matches!(self.peek().kind, Kind::Comma | Kind::Close) {
                        values.insert("");
                    }
                }
                _ => return found(token, ", expected: ',', or identifier"),
            }
            if self.peek().kind == Kind::Close {
                self.next();
                return Ok(values);
            }
        }
    }

    /// The next token where a key or a value can stand.
    fn peek(&self) -> Token<'a> {
        let token = self.tokens.get(self.position).copied().unwrap_or(END);
        match token.kind {
            Kind::Operator(Operator::In | Operator::NotIn) => Token { kind: Kind::Identifier, ..token },
            _ => token,
        }
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.position += 1;
        token
    }

    /// The next token where an operator can stand.
    fn next_raw(&mut self) -> Token<'a> {
        let token = self.tokens.get(self.position).copied().unwrap_or(END);
        self.position += 1;
        token
    }
}

fn found<T>(token: Token<'_>, expected: &str) -> Result<T, SelectorError> {
    Err(SelectorError::new(format!("found '{}'{expected}", token.literal)))
}

fn in_requirement(error: SelectorError) -> SelectorError {
    SelectorError::new(format!("unable to parse requirement: {error}"))
}

/// Cuts the text into tokens. A NUL byte ends a token, and the text if it stands alone: Kubernetes' reader takes it so.
fn scan(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() && !rest.starts_with('\0') {
        let token = scan_one(rest);
        rest = &rest[token.literal.len()..];
        rest = rest.strip_prefix('\0').unwrap_or(rest);
        tokens.push(token);
        rest = rest.trim_start_matches(is_space);
    }
    tokens
}

fn scan_one(text: &str) -> Token<'_> {
    const SYMBOLS: [(&str, Kind); 9] = [
        ("==", Kind::Operator(Operator::DoubleEquals)),
        ("!=", Kind::Operator(Operator::NotEquals)),
        ("=", Kind::Operator(Operator::Equals)),
        (">", Kind::Operator(Operator::GreaterThan)),
        ("<", Kind::Operator(Operator::LessThan)),
        ("!", Kind::Not),
        ("(", Kind::Open),
        (")", Kind::Close),
        (",", Kind::Comma),
    ];
    if let Some((literal, kind)) = SYMBOLS.into_iter().find(|(symbol, _)| text.starts_with(symbol)) {
        return Token { kind, literal };
    }
    let end = text.find(|next| is_symbol(next) || is_space(next) || next == '\0').unwrap_or(text.len());
    let literal = &text[..end];
    let kind = match literal {
        "in" => Kind::Operator(Operator::In),
        "notin" => Kind::Operator(Operator::NotIn),
        _ => Kind::Identifier,
    };
    Token { kind, literal }
}

fn is_symbol(character: char) -> bool {
    matches!(character, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

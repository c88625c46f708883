//! The arithmetic of a shell: whole numbers, variables, and the usual signs.

/// The value of a sum; none if it is none, or has no value.
pub fn value(sum: &str, variable: &dyn Fn(&str) -> Option<String>) -> Option<i64> {
    let mut reader = Reader { rest: sum.trim(), variable, depth: 0 };
    let value = reader.at_least(0)?;
    reader.rest.is_empty().then_some(value)
}

/// How deep brackets may be inside of others.
const DEPTH_MAX: usize = 32;

/// Signs, the longer of two that begin alike first, and how tightly they bind.
const SIGNS: [(&str, u8); 13] = [
    ("||", 1),
    ("&&", 2),
    ("==", 3),
    ("!=", 3),
    ("<=", 4),
    (">=", 4),
    ("<", 4),
    (">", 4),
    ("+", 5),
    ("-", 5),
    ("*", 6),
    ("/", 6),
    ("%", 6),
];

struct Reader<'a> {
    rest: &'a str,
    variable: &'a dyn Fn(&str) -> Option<String>,
    depth: usize,
}

impl<'a> Reader<'a> {
    /// A sum of signs that bind at least so tightly.
    fn at_least(&mut self, least: u8) -> Option<i64> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let mut left = self.single()?;
        while let Some((sign, binds)) = SIGNS.iter().copied().find(|(sign, _)| self.rest.starts_with(sign)) {
            if binds < least {
                break;
            }
            self.skip(sign.len());
            let right = self.at_least(binds + 1)?;
            left = joined(left, sign, right)?;
        }
        self.depth -= 1;
        Some(left)
    }

    fn single(&mut self) -> Option<i64> {
        if let Some(rest) = self.rest.strip_prefix('(') {
            self.rest = rest.trim_start();
            let inside = self.at_least(0)?;
            self.rest.starts_with(')').then(|| self.skip(1))?;
            return Some(inside);
        }
        if self.rest.starts_with('-') {
            self.skip(1);
            return self.single()?.checked_neg();
        }
        self.rest = self.rest.strip_prefix('$').unwrap_or(self.rest);
        let end = self.rest.find(|it: char| !it.is_ascii_alphanumeric() && it != '_').unwrap_or(self.rest.len());
        let word = &self.rest[..end];
        self.skip(end);
        match word.starts_with(|first: char| first.is_ascii_digit()) {
            true => word.parse().ok(),
            false => (self.variable)(word).and_then(|value| value.trim().parse().ok()),
        }
    }

    fn skip(&mut self, length: usize) {
        self.rest = self.rest[length..].trim_start();
    }
}

fn joined(left: i64, sign: &str, right: i64) -> Option<i64> {
    match sign {
        "||" => Some(i64::from(left != 0 || right != 0)),
        "&&" => Some(i64::from(left != 0 && right != 0)),
        "==" => Some(i64::from(left == right)),
        "!=" => Some(i64::from(left != right)),
        "<=" => Some(i64::from(left <= right)),
        ">=" => Some(i64::from(left >= right)),
        "<" => Some(i64::from(left < right)),
        ">" => Some(i64::from(left > right)),
        "+" => left.checked_add(right),
        "-" => left.checked_sub(right),
        "*" => left.checked_mul(right),
        "/" => left.checked_div(right),
        _ => left.checked_rem(right),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_worked_out_as_in_a_shell() {
        let check = |sum: &str, expected: Option<i64>| {
            let seven = |name: &str| (name == "n").then(|| "7".to_owned());
            assert_eq!(value(sum, &seven), expected, "{sum}");
        };
        check("1 + 2 * 3", Some(7));
        check("(1+2)*3", Some(9));
        check("$n % 2", Some(1));
        check("n / 2 - 10", Some(-7));
        check("-3 - -4", Some(1));
        check("3 % 2 == 1", Some(1));
        check("n > 6 && n < 8", Some(1));
        check("1 / 0", None);
        check("unknown + 1", None);
        check("1 +", None);
        check("1 2", None);
        check(&"(".repeat(100), None);
    }
}

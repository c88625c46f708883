//! The part of a shell's grammar that scripts in manifests are made of. What is beyond it is not read at all.

/// A script: commands, and what joins each to the one before it.
pub type List = Vec<(Joint, Command)>;

/// When a command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joint {
    /// In any case.
    Then,
    /// If the one before succeeded.
    And,
    /// If the one before failed.
    Or,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Simple { words: Vec<Word>, into: Option<Target> },
    If { branches: Vec<(List, List)>, otherwise: List },
    Loop { until: bool, condition: List, body: List },
    For { name: String, words: Vec<Word>, body: List },
    Group(List),
    Not(Box<Command>),
}

/// Where the output of a command goes, if not to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub path: Word,
    pub append: bool,
}

/// A word before its variables have values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word(pub Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    /// `$NAME` or `${NAME:-text}`; split at spaces unless quoted.
    Variable {
        name: String,
        fallback: Option<String>,
        quoted: bool,
    },
    /// `$(script)`.
    Output {
        script: String,
        quoted: bool,
    },
    /// `$((sum))`.
    Sum(String),
}

impl Word {
    /// Its text, if nothing in it has to be looked up.
    fn plain(&self) -> Option<&str> {
        match self.0.as_slice() {
            [] => Some(""),
            [Piece::Text(text)] => Some(text),
            _ => None,
        }
    }

    fn push(&mut self, letter: char) {
        match self.0.last_mut() {
            Some(Piece::Text(text)) => text.push(letter),
            _ => self.0.push(Piece::Text(letter.to_string())),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(Word),
    End,
    And,
    Or,
    Into { append: bool },
}

/// Reads a script; none if it has something that this grammar doesn't.
pub fn parse(script: &str) -> Option<List> {
    let tokens = tokens(script)?;
    let mut reader = Reader { tokens: &tokens, at: 0, depth: 0 };
    let list = reader.list(&[])?;
    (reader.at == tokens.len()).then_some(list)
}

/// How deep commands may be inside of others.
const DEPTH_MAX: usize = 32;

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    /// The next word if it is plain, which reserved words are.
    fn reserved(&self) -> Option<&str> {
        match self.peek()? {
            Token::Word(word) => word.plain(),
            _ => None,
        }
    }

    fn take(&mut self, word: &str) -> Option<()> {
        (self.reserved()? == word).then(|| self.at += 1)
    }

    /// Commands up to one of these words, which is left there.
    fn list(&mut self, until: &[&str]) -> Option<List> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let (mut list, mut joint) = (List::new(), Joint::Then);
        loop {
            while self.peek() == Some(&Token::End) {
                self.at += 1;
            }
            match (self.peek(), self.reserved()) {
                (None, _) => break,
                (_, Some(word)) if until.contains(&word) => break,
                _ => {}
            }
            list.push((joint, self.command()?));
            joint = match self.peek() {
                Some(Token::And) => Joint::And,
                Some(Token::Or) => Joint::Or,
                Some(Token::End) => Joint::Then,
                None => break,
                Some(_) => return None,
            };
            self.at += 1;
        }
        self.depth -= 1;
        Some(list)
    }

    fn command(&mut self) -> Option<Command> {
        match self.reserved() {
            Some("if") => self.choice(),
            Some(word @ ("while" | "until")) => {
                let until = word == "until";
                self.at += 1;
                let condition = self.list(&["do"])?;
                let body = self.body()?;
                Some(Command::Loop { until, condition, body })
            }
            Some("for") => {
                self.at += 1;
                let name = self.reserved()?.to_owned();
                self.at += 1;
                self.take("in")?;
                let words = self.words();
                while self.peek() == Some(&Token::End) {
                    self.at += 1;
                }
                let body = self.body()?;
                Some(Command::For { name, words, body })
            }
            Some("{") => {
                self.at += 1;
                let list = self.list(&["}"])?;
                self.take("}")?;
                Some(Command::Group(list))
            }
            Some("!") => {
                self.at += 1;
                Some(Command::Not(Box::new(self.command()?)))
            }
            Some("case" | "function" | "do" | "done" | "then" | "fi" | "else" | "elif") => None,
            _ => self.simple(),
        }
    }

    fn choice(&mut self) -> Option<Command> {
        let mut branches = Vec::new();
        self.take("if")?;
        loop {
            let condition = self.list(&["then"])?;
            self.take("then")?;
            branches.push((condition, self.list(&["elif", "else", "fi"])?));
            if self.take("elif").is_none() {
                break;
            }
        }
        let otherwise = match self.take("else") {
            Some(()) => self.list(&["fi"])?,
            None => List::new(),
        };
        self.take("fi")?;
        Some(Command::If { branches, otherwise })
    }

    fn body(&mut self) -> Option<List> {
        self.take("do")?;
        let body = self.list(&["done"])?;
        self.take("done")?;
        Some(body)
    }

    fn words(&mut self) -> Vec<Word> {
        let mut words = Vec::new();
        while let Some(Token::Word(word)) = self.peek() {
            words.push(word.clone());
            self.at += 1;
        }
        words
    }

    fn simple(&mut self) -> Option<Command> {
        let (mut words, mut into) = (self.words(), None);
        while let Some(Token::Into { append }) = self.peek() {
            let append = *append;
            self.at += 1;
            let mut rest = self.words().into_iter();
            into = Some(Target { path: rest.next()?, append });
            words.extend(rest);
        }
        (!words.is_empty()).then_some(Command::Simple { words, into })
    }
}

/// Cuts a script into words and signs; none if there is a sign that is not known, a pipe among them.
fn tokens(script: &str) -> Option<Vec<Token>> {
    let (mut tokens, mut word) = (Vec::new(), None::<Word>);
    let mut letters = script.chars().peekable();
    while let Some(letter) = letters.next() {
        let sign = match letter {
            '\n' | ';' => Token::End,
            '&' => match letters.next()? {
                '&' => Token::And,
                _ => return None,
            },
            '|' => match letters.next()? {
                '|' => Token::Or,
                _ => return None,
            },
            '>' => {
                let append = letters.next_if_eq(&'>').is_some();
                if letters.next_if_eq(&'&').is_some() {
                    // Errors and output are one log: what goes from one to the other stays.
                    letters.next_if(char::is_ascii_digit)?;
                    tokens.extend(word.take().filter(|word| !is_channel(word)).map(Token::Word));
                    continue;
                }
                if word.take_if(|word| is_channel(word)).is_some() {
                    return None;
                }
                Token::Into { append }
            }
            '<' | '(' | ')' | '`' => return None,
            '#' if word.is_none() => {
                while letters.next_if(|next| *next != '\n').is_some() {}
                continue;
            }
            _ if letter.is_whitespace() => {
                tokens.extend(word.take().map(Token::Word));
                continue;
            }
            _ => {
                piece(letter, &mut letters, word.get_or_insert_default())?;
                continue;
            }
        };
        tokens.extend(word.take().map(Token::Word));
        tokens.push(sign);
    }
    tokens.extend(word.take().map(Token::Word));
    Some(tokens)
}

/// The `2` of `2>`.
fn is_channel(word: &Word) -> bool {
    matches!(word.plain(), Some("1" | "2"))
}

type Letters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Adds what begins with this letter, outside of quotes, to a word.
fn piece(letter: char, letters: &mut Letters<'_>, word: &mut Word) -> Option<()> {
    match letter {
        '\'' => {
            word.0.push(Piece::Text(String::new()));
            loop {
                match letters.next()? {
                    '\'' => return Some(()),
                    other => word.push(other),
                }
            }
        }
        '"' => {
            word.0.push(Piece::Text(String::new()));
            loop {
                match letters.next()? {
                    '"' => return Some(()),
                    '\\' => match letters.next()? {
                        escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                        '\n' => {}
                        other => {
                            word.push('\\');
                            word.push(other);
                        }
                    },
                    '$' => dollar(letters, word, true)?,
                    '`' => return None,
                    other => word.push(other),
                }
            }
        }
        '\\' => {
            match letters.next()? {
                '\n' => {}
                other => word.push(other),
            }
            Some(())
        }
        '$' => dollar(letters, word, false),
        other => {
            word.push(other);
            Some(())
        }
    }
}

/// Adds what begins with a `$` to a word.
fn dollar(letters: &mut Letters<'_>, word: &mut Word, quoted: bool) -> Option<()> {
    match letters.peek() {
        Some('{') => {
            letters.next();
            let inside: String = std::iter::from_fn(|| letters.next_if(|next| *next != '}')).collect();
            letters.next()?;
            let end = inside.find(|letter| !is_name(letter)).unwrap_or(inside.len());
            let (name, rest) = inside.split_at(end);
            let fallback = match rest {
                "" => None,
                rest => match (rest.strip_prefix(":-"), rest.strip_prefix(":?")) {
                    (Some(fallback), _) if !fallback.contains(['$', '"', '\'']) => Some(fallback.to_owned()),
                    (_, Some(_)) => None,
                    _ => return None,
                },
            };
            word.0.push(Piece::Variable { name: name.to_owned(), fallback, quoted });
        }
        Some('(') => {
            let inside = bracketed(letters)?;
            match inside.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
                Some(sum) => word.0.push(Piece::Sum(sum.to_owned())),
                None => word.0.push(Piece::Output { script: inside, quoted }),
            }
        }
        Some(next) if is_name(*next) => {
            let name: String = std::iter::from_fn(|| letters.next_if(|next| is_name(*next))).collect();
            word.0.push(Piece::Variable { name, fallback: None, quoted });
        }
        Some('?' | '$' | '!' | '#' | '@' | '*') => return None,
        _ => word.push('$'),
    }
    Some(())
}

fn is_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// What is between a bracket and the one that closes it.
fn bracketed(letters: &mut Letters<'_>) -> Option<String> {
    letters.next_if_eq(&'(')?;
    let (mut inside, mut open) = (String::new(), 1);
    loop {
        let letter = letters.next()?;
        match letter {
            '(' => open += 1,
            ')' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(inside);
        }
        inside.push(letter);
    }
}

/// One word, spaces and all, with what is looked up in it.
pub fn word(text: &str) -> Option<Word> {
    let (mut word, mut letters) = (Word::default(), text.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '$' => dollar(&mut letters, &mut word, true)?,
            other => word.push(other),
        }
    }
    Some(word)
}

//! Figures in the text form of Prometheus, as the server serves them at `/metrics`.

use std::collections::BTreeMap;

/// All samples of one moment.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    samples: Vec<Sample>,
}

#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Figures {
    /// Reads the text; lines that can't be read are left out.
    pub fn parse(text: &str) -> Figures {
        Figures { samples: text.lines().filter_map(sample).collect() }
    }

    /// The sum of all samples of a name.
    pub fn sum(&self, name: &str) -> f64 {
        self.samples.iter().filter(|sample| sample.name == name).map(|sample| sample.value).sum()
    }

    /// The sums of a name by one of its labels.
    pub fn by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for sample in self.samples.iter().filter(|sample| sample.name == name) {
            if let Some(key) = sample.labels.get(label) {
                *sums.entry(key.clone()).or_insert(0.0) += sample.value;
            }
        }
        sums
    }

    /// The names of all samples.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.samples.iter().map(|sample| sample.name.as_str())
    }
}

fn sample(line: &str) -> Option<Sample> {
    if line.starts_with('#') {
        return None;
    }
    let (name, rest) = match line.find('{') {
        Some(open) => {
            let close = line.rfind('}')?;
            (&line[..open], (&line[open + 1..close], line[close + 1..].trim()))
        }
        None => line.split_once(' ').map(|(name, value)| (name, ("", value.trim())))?,
    };
    let (labels, value) = rest;
    let value = value.split(' ').next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels: self::labels(labels)?, value })
}

fn labels(mut text: &str) -> Option<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = rest.char_indices();
        let end = loop {
            match letters.next()? {
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (at, '"') => break at,
                (_, letter) => value.push(letter),
            }
        };
        labels.insert(name.trim_start_matches([',', ' ']).to_owned(), value);
        text = &rest[end + 1..];
    }
    Some(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_label() {
        let text = "# HELP a help\na{x=\"1\",y=\"p\\\"q\"} 2\na{x=\"1\",y=\"r\"} 3.5\na{x=\"2\"} 1\nb 7\nbroken{ 1\n";
        let figures = Figures::parse(text);
        assert_eq!(figures.sum("a"), 6.5);
        assert_eq!(figures.sum("b"), 7.0);
        assert_eq!(figures.by("a", "x"), BTreeMap::from([("1".to_owned(), 5.5), ("2".to_owned(), 1.0)]));
        assert_eq!(figures.by("a", "y").len(), 2);
    }
}

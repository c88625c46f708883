//! What goes wrong in a simulation, and how often.

/// How often things go wrong: each a probability, from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// A frame is lost, whichever way it goes.
    pub drop: f64,
    /// A frame comes up to half a minute late.
    pub delay: f64,
    /// A download is not what was asked for.
    pub corrupt: f64,
    /// A download breaks off.
    pub broken: f64,
    /// An installation fails.
    pub flash: f64,
    /// Good firmware seems not to be well.
    pub health: f64,
    /// A vehicle loses its power during an action.
    pub crash: f64,
    /// Vehicles that are out of reach for hours or days at a time.
    pub offline: f64,
    /// Versions that are never well.
    pub bad_versions: Vec<String>,
}

impl Faults {
    /// Reads `drop=0.01,crash=0.02,bad=3.0.0`.
    pub fn parse(text: &str) -> Result<Faults, String> {
        let mut faults = Faults::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not NAME=VALUE"))?;
            if name == "bad" {
                faults.bad_versions.push(value.to_owned());
                continue;
            }
            let share: f64 = value.parse().map_err(|_| format!("{value:?} is no number"))?;
            if !(0.0..=1.0).contains(&share) {
                return Err(format!("{name} is a share from 0 to 1"));
            }
            *faults.share(name).ok_or_else(|| format!("there is no fault called {name:?}"))? = share;
        }
        Ok(faults)
    }

    fn share(&mut self, name: &str) -> Option<&mut f64> {
        Some(match name {
            "drop" => &mut self.drop,
            "delay" => &mut self.delay,
            "corrupt" => &mut self.corrupt,
            "broken" => &mut self.broken,
            "flash" => &mut self.flash,
            "health" => &mut self.health,
            "crash" => &mut self.crash,
            "offline" => &mut self.offline,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_shares_by_name() {
        let faults = Faults::parse("drop=0.01,bad=3.0.0,crash=1").unwrap();
        let bad_versions = vec!["3.0.0".to_owned()];
        assert_eq!(faults, Faults { drop: 0.01, crash: 1.0, bad_versions, ..Faults::default() });
        assert_eq!(Faults::parse(""), Ok(Faults::default()));
        for wrong in ["drop", "drop=x", "drop=2", "luck=0.5"] {
            assert!(Faults::parse(wrong).is_err(), "{wrong}");
        }
    }
}

//! A cloud in memory, for tests and for a first look.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::cloud::{Cloud, CloudError, CloudMachine, Form, Stage};

/// How long the cloud needs to make, change or delete a machine.
const OPERATION: Duration = Duration::from_secs(12);

/// Machines with this image break.
pub const BROKEN_IMAGE: &str = "broken";

/// A cloud in memory. Operations take some seconds; images called `broken` break.
#[derive(Debug, Default)]
pub struct MemoryCloud(Mutex<Machines>);

#[derive(Debug, Default)]
struct Machines {
    all: BTreeMap<String, Entry>,
    /// How many were ever made; the next name and address follow from it.
    made: u32,
    /// How many there were at once, at most.
    most: usize,
    /// How many calls to come are refused.
    refuse: u32,
}

#[derive(Debug)]
struct Entry {
    token: String,
    form: Form,
    address: String,
    until: Instant,
    is_deleting: bool,
}

impl MemoryCloud {
    /// Refuses the next calls that change something: the cloud is full.
    pub fn refuse_next(&self, calls: u32) {
        self.lock().refuse = calls;
    }

    /// Takes all machines away, as if by accident.
    pub fn lose_all(&self) {
        self.lock().all.clear();
    }

    /// The tokens of all machines that there are, one for each machine.
    pub fn tokens(&self) -> Vec<String> {
        let machines = self.lock();
        machines.all.values().map(|machine| machine.token.clone()).collect()
    }

    /// How many machines were ever made.
    pub fn made(&self) -> u32 {
        self.lock().made
    }

    /// How many machines there were at once, at most.
    pub fn most(&self) -> usize {
        self.lock().most
    }

    fn lock(&self) -> MutexGuard<'_, Machines> {
        let mut machines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        machines.all.retain(|_, machine| !machine.is_deleting || machine.until > now);
        machines
    }

    /// The machines, for a call that changes something.
    fn change(&self) -> Result<MutexGuard<'_, Machines>, CloudError> {
        let mut machines = self.lock();
        match machines.refuse.checked_sub(1) {
            None => Ok(machines),
            Some(rest) => {
                machines.refuse = rest;
                Err(CloudError("no capacity".to_owned()))
            }
        }
    }
}

impl Machines {
    fn of(&mut self, token: &str) -> Option<(&String, &mut Entry)> {
        self.all.iter_mut().find(|(_, machine)| machine.token == token)
    }
}

impl Entry {
    fn stage(&self) -> Stage {
        match self.until > Instant::now() {
            _ if self.is_deleting => Stage::Deleting,
            true => Stage::Working,
            false if self.form.image == BROKEN_IMAGE => Stage::Broken,
            false => Stage::Running,
        }
    }
}

impl Cloud for MemoryCloud {
    async fn find(&self, token: &str) -> Result<Option<CloudMachine>, CloudError> {
        let mut machines = self.lock();
        Ok(machines.of(token).map(|(id, machine)| CloudMachine {
            id: id.clone(),
            address: Some(machine.address.clone()).filter(|_| machine.stage() == Stage::Running),
            form: machine.form.clone(),
            stage: machine.stage(),
        }))
    }

    async fn create(&self, token: &str, form: &Form) -> Result<(), CloudError> {
        let mut machines = self.change()?;
        if machines.of(token).is_some() {
            return Ok(());
        }
        machines.made += 1;
        let number = machines.made;
        let [_, b, c, d] = number.to_be_bytes();
        let machine = Entry {
            token: token.to_owned(),
            form: form.clone(),
            address: format!("10.{b}.{c}.{d}"),
            until: Instant::now() + OPERATION,
            is_deleting: false,
        };
        machines.all.insert(format!("m-{number}"), machine);
        machines.most = machines.most.max(machines.all.len());
        Ok(())
    }

    async fn change(&self, token: &str, form: &Form) -> Result<(), CloudError> {
        let mut machines = MemoryCloud::change(self)?;
        match machines.of(token) {
            None => Err(CloudError(format!("there is no machine of {token}"))),
            Some((_, machine)) if machine.form == *form => Ok(()),
            Some((_, machine)) if machine.stage() != Stage::Running => {
                Err(CloudError("another operation is under way".to_owned()))
            }
            Some((_, machine)) => {
                machine.form = form.clone();
                machine.until = Instant::now() + OPERATION;
                Ok(())
            }
        }
    }

    async fn delete(&self, token: &str) -> Result<(), CloudError> {
        let mut machines = MemoryCloud::change(self)?;
        if let Some((_, machine)) = machines.of(token).filter(|(_, machine)| !machine.is_deleting) {
            machine.is_deleting = true;
            machine.until = Instant::now() + OPERATION;
        }
        Ok(())
    }
}

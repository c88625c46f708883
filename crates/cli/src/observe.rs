//! Looks at one object until something about it is so, or at many for as long as somebody wants to see them.

use std::time::Duration;

use serde_json::Value;

use crate::discovery::Kind;
use crate::failure::{Failure, note};
use crate::request::{Ask, Server, Trouble, Watch};

/// Pause before a watch that has ended begins again.
const PAUSE: Duration = Duration::from_secs(1);

/// A watch that begins again when it ends, from where it was: over restarts of the server.
pub struct Following<'a> {
    server: &'a Server,
    version: String,
    watch: Option<Watch>,
    told: bool,
}

/// What a watch that goes on gives.
pub enum Next {
    /// An event: its type and its object.
    Event(String, Value),
    /// What happened since is no longer known: what is there now has to be read.
    Expired,
}

impl<'a> Following<'a> {
    /// From a version on; an empty one means that what is there comes first.
    pub fn from(server: &'a Server, version: String) -> Following<'a> {
        Following { server, version, watch: None, told: false }
    }

    /// From another version on.
    pub fn go_on_from(&mut self, version: String) {
        (self.version, self.watch) = (version, None);
    }

    /// The version of the last event.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The next event, however long it takes to come. Only a refusal is an end.
    pub async fn next(&mut self, ask: impl Fn() -> Ask<'a>) -> Result<Next, Trouble> {
        loop {
            let watch = match &mut self.watch {
                Some(watch) => watch,
                None => match self.server.watch(ask().with_some("resourceVersion", Some(&self.version))).await {
                    Ok(watch) => self.watch.insert(watch),
                    Err(Trouble::Refused(status)) if is_expired(&status) => return Ok(Next::Expired),
                    // One that ends or begins answers 503 and the like: it is not a refusal.
                    Err(Trouble::Refused(status)) if status["code"].as_i64().is_some_and(|code| code < 500) => {
                        return Err(Trouble::Refused(status));
                    }
                    Err(trouble) => {
                        self.cut(&trouble.words()).await;
                        continue;
                    }
                },
            };
            match watch.next().await {
                Some((event, object)) if event == "ERROR" => {
                    self.watch = None;
                    if is_expired(&object) {
                        return Ok(Next::Expired);
                    }
                    return Err(Trouble::Refused(object));
                }
                Some((event, object)) => {
                    if let Some(version) = version_of(&object) {
                        version.clone_into(&mut self.version);
                    }
                    if event != "BOOKMARK" {
                        return Ok(Next::Event(event, object));
                    }
                }
                // The server ends watches after a while, too, so this alone says nothing.
                None => {
                    self.watch = None;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn cut(&mut self, why: &str) {
        if !std::mem::replace(&mut self.told, true) {
            note(&format!("warning: the watch was cut ({why}); it goes on when it can"));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn is_expired(status: &Value) -> bool {
    status["code"] == 410 || status["reason"] == "Expired"
}

/// The version of an object, of a list, or of the last row of a table.
fn version_of(object: &Value) -> Option<&str> {
    let last = object["rows"].as_array().and_then(|rows| rows.last()).map(|row| &row["object"]);
    last.unwrap_or(object)["metadata"]["resourceVersion"].as_str()
}

/// One object.
pub struct Subject<'a> {
    /// Its kind.
    pub kind: &'a Kind,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// Shows an object, or that it is not there, to `judge` whenever it changes, until that says yes.
pub async fn until(
    server: &Server,
    subject: &Subject<'_>,
    mut judge: impl FnMut(Option<&Value>) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let ask = || {
        let path = subject.kind.path(Some(subject.namespace));
        Ask::get(path).with("fieldSelector", format!("metadata.name={}", subject.name))
    };
    loop {
        let list = server.get(ask()).await?;
        let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        if judge(list["items"].as_array().and_then(|items| items.first()))? {
            return Ok(());
        }
        let mut watch = server.watch(ask().with("resourceVersion", version)).await?;
        while let Some((event, object)) = watch.next().await {
            let object = match event.as_str() {
                "ADDED" | "MODIFIED" => Some(&object),
                "DELETED" => None,
                _ => break,
            };
            if judge(object)? {
                return Ok(());
            }
        }
        // The server ends watches after a while; what is so now is read anew.
    }
}

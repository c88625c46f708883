//! Looks at one object until something about it is so.

use serde_json::Value;

use crate::discovery::Kind;
use crate::failure::Failure;
use crate::request::{Ask, Server};

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

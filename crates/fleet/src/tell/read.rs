//! Reads a namespace, page by page.

use kube::api::ListParams;
use kube::core::Request;
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Fleet;
use crate::kinds::{Firmware, Rollout, Vehicle};

/// Objects in one answer.
const PAGE: u32 = 1000;

impl Fleet {
    /// Reads everything of a namespace.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn read(client: &Client, namespace: &str) -> Result<Fleet, kube::Error> {
        Ok(Fleet {
            vehicles: all(client, &Vehicle::url_path(&(), Some(namespace))).await?,
            firmwares: all(client, &Firmware::url_path(&(), Some(namespace))).await?,
            rollouts: all(client, &Rollout::url_path(&(), Some(namespace))).await?,
        })
    }
}

#[derive(Deserialize)]
struct Page<K> {
    #[serde(default)]
    metadata: PageMeta,
    items: Vec<K>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(default, rename = "continue")]
    next: Option<String>,
}

async fn all<K: DeserializeOwned>(client: &Client, path: &str) -> Result<Vec<K>, kube::Error> {
    let mut params = ListParams::default().limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let request = Request::new(path).list(&params).map_err(kube::Error::BuildRequest)?;
        let page: Page<K> = client.request(request).await?;
        objects.extend(page.items);
        match page.metadata.next.filter(|next| !next.is_empty()) {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(objects),
        }
    }
}

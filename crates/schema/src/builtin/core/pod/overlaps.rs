//! Files of a volume that would stand in each other's way.

use setpoint_api::quote::quote;

use crate::node::Node;

/// A warning for each two files of a volume of which one is the other, or its directory.
pub fn overlap_warnings(spec: &Node<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    for volume in spec.items("volumes") {
        let name = quote(volume.str("name"));
        let (config, secret, downward) = (volume.get("configMap"), volume.get("secret"), volume.get("downwardAPI"));
        let described = [
            (config.get("items"), format!("ConfigMap {}", quote(config.str("name")))),
            (secret.get("items"), format!("Secret {}", quote(secret.str("secretName")))),
            (downward.get("items"), "DownwardAPI".to_owned()),
        ];
        for (items, description) in described {
            let mut files = Files::default();
            for item in items.into_items() {
                for other in files.add(item.str("path"), "") {
                    warnings.push(format!("volume {name} ({description}): overlapping paths: {other}"));
                }
            }
        }
        let mut files = Files::default();
        for source in volume.get("projected").items("sources") {
            if source.is_empty() {
                warnings.push(format!("volume {name} (Projected) has no sources provided"));
            }
            for (path, origin) in projected_files(&source) {
                for other in files.add(path, &origin) {
                    warnings.push(format!("volume {name} (Projected): overlapping paths: {other}"));
                }
            }
        }
    }
    warnings
}

/// Files with their origins.
#[derive(Default)]
struct Files(Vec<(String, String)>);

impl Files {
    /// Adds a file, and tells what it overlaps with.
    fn add(&mut self, path: &str, origin: &str) -> Vec<String> {
        let path = path.trim_end_matches('/');
        let below = |inner: &str, outer: &str| format!("{inner}/").starts_with(&format!("{outer}/"));
        let overlaps =
            |other: &str| !path.is_empty() && !other.is_empty() && (below(other, path) || below(path, other));
        let others = self.0.iter().filter(|(other, _)| overlaps(other));
        let found =
            others.map(|(other, from)| format!("{} with {}", shown(path, origin), shown(other, from))).collect();
        self.0.push((path.to_owned(), origin.to_owned()));
        found
    }
}

fn shown(path: &str, origin: &str) -> String {
    if origin.is_empty() { quote(path) } else { format!("{} ({origin})", quote(path)) }
}

fn projected_files<'a>(source: &Node<'a>) -> Vec<(&'a str, String)> {
    let items =
        |at: &Node<'a>, origin: String| at.items("items").map(|item| (item.str("path"), origin.clone())).collect();
    let (config, secret, downward) = (source.get("configMap"), source.get("secret"), source.get("downwardAPI"));
    let (token, bundle, certificate) =
        (source.get("serviceAccountToken"), source.get("clusterTrustBundle"), source.get("podCertificate"));
    if config.has("items") {
        items(&config, format!("ConfigMap {}", quote(config.str("name"))))
    } else if secret.has("items") {
        items(&secret, format!("Secret {}", quote(secret.str("name"))))
    } else if downward.has("items") {
        items(&downward, "DownwardAPI".to_owned())
    } else if token.is_set() {
        vec![(token.str("path"), "ServiceAccountToken".to_owned())]
    } else if bundle.is_set() {
        let name = if bundle.has("name") { bundle.str("name") } else { bundle.str("signerName") };
        vec![(bundle.str("path"), format!("ClusterTrustBundle {}", quote(name)))]
    } else {
        [("certificateChainPath", "chain"), ("keyPath", "key"), ("credentialBundlePath", "credential bundle")]
            .into_iter()
            .map(|(field, word)| (certificate.str(field), format!("PodCertificate {word}")))
            .filter(|(path, _)| !path.is_empty())
            .collect()
    }
}

//! Which images are on nodes.

use std::collections::HashMap;

use crate::node::Offer;

/// Images by name, with the number of nodes that have them.
#[derive(Default)]
pub struct Images(HashMap<Box<str>, usize>);

impl Images {
    /// A node came, or went.
    pub fn count(&mut self, offer: &Offer, is_there: bool) {
        for name in offer.images.iter().flat_map(|image| &image.names) {
            let nodes = self.0.entry(name.clone()).or_default();
            *nodes = if is_there { *nodes + 1 } else { nodes.saturating_sub(1) };
            if *nodes == 0 {
                self.0.remove(name);
            }
        }
    }

    /// Whether any of these is on a node.
    pub fn knows(&self, images: &[Box<str>]) -> bool {
        !self.0.is_empty() && images.iter().any(|image| self.0.contains_key(image))
    }

    /// The size of an image on a node, by the share of all nodes that have it.
    pub fn bytes_on(&self, image: &str, offer: &Offer, nodes: usize) -> i64 {
        let here = offer.images.iter().find(|it| it.names.iter().any(|name| &**name == image));
        let share = self.0.get(image).copied().unwrap_or_default();
        here.map_or(0, |here| {
            let share = i64::try_from(share).unwrap_or(i64::MAX);
            here.size_bytes.saturating_mul(share) / i64::try_from(nodes.max(1)).unwrap_or(i64::MAX)
        })
    }
}

/// The name by which nodes know an image: one without a tag means the latest.
pub fn whole_name(image: &str) -> Box<str> {
    let has_tag = image.rfind(':') > image.rfind('/');
    if has_tag { image.into() } else { format!("{image}:latest").into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_tag_is_the_latest() {
        for (written, whole) in [
            ("nginx", "nginx:latest"),
            ("nginx:1.27", "nginx:1.27"),
            ("registry:5000/nginx", "registry:5000/nginx:latest"),
            ("registry:5000/nginx:1", "registry:5000/nginx:1"),
        ] {
            assert_eq!(&*whole_name(written), whole);
        }
    }
}

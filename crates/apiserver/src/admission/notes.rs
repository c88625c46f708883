//! What webhooks and policies leave behind beside their verdict.

/// Warnings for the client, and annotations for the audit log.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) warnings: Vec<String>,
    pub(super) annotations: Vec<(String, String)>,
}

impl Notes {
    pub(super) fn annotate(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.annotations.push((key.into(), value.into()));
    }
}

//! Names of images: as much as is needed to know the tag.

/// Longest name of a repository, with its host.
const NAME_BYTES_MAX: usize = 255;
/// Longest tag.
const TAG_BYTES_MAX: usize = 128;
/// The host of names that don't say one.
const DEFAULT_HOST: &str = "docker.io";

/// Whether the image is what its repository calls `latest`, said or unsaid. A name that can't be read is not.
pub fn is_latest(image: &str) -> bool {
    tag(image).is_some_and(|tag| tag == "latest")
}

/// The tag; `latest` if there is neither a tag nor a digest, `""` if there is a digest alone. None for a name that can't
/// be read.
fn tag(image: &str) -> Option<&str> {
    if image.len() == 64 && image.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
        return None;
    }
    let (host, rest) = split_host(image);
    let (rest, digest) = rest.split_once('@').map_or((rest, None), |(rest, digest)| (rest, Some(digest)));
    let (path, tag) = rest.split_once(':').map_or((rest, None), |(path, tag)| (path, Some(tag)));
    let readable = host.is_none_or(is_host)
        && path.split('/').all(is_path_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest)
        && host.unwrap_or(DEFAULT_HOST).len() + 1 + path.len() <= NAME_BYTES_MAX;
    readable.then(|| tag.unwrap_or(if digest.is_some() { "" } else { "latest" }))
}

/// What stands before the first slash is a host if it looks like one.
fn split_host(image: &str) -> (Option<&str>, &str) {
    match image.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" || host.to_lowercase() != host => {
            (Some(host), rest)
        }
        _ => (None, image),
    }
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !host.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_v6 = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_name = match is_v6 {
        Some(inner) => !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':'),
        None => name.split('.').all(is_label),
    };
    is_name && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Runs of small letters and digits, between them one dot, one or two underscores, or any number of dashes.
fn is_path_component(component: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let ends = bytes.first().is_some_and(|byte| is_word(*byte)) && bytes.last().is_some_and(|byte| is_word(*byte));
    let separators =
        component.split(|letter: char| letter.is_ascii() && is_word(letter as u8)).filter(|part| !part.is_empty());
    let is_separator = |part: &str| matches!(part, "." | "_" | "__") || part.bytes().all(|byte| byte == b'-');
    ends && separators.into_iter().all(is_separator)
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.bytes().next().is_some_and(is_word)
        && tag.len() <= TAG_BYTES_MAX
        && tag.bytes().all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_tag_or_digest_is_the_latest() {
        let digest = format!("nginx@sha256:{}", "a".repeat(64));
        for (image, latest) in [
            ("nginx", true),
            ("nginx:latest", true),
            ("nginx:1.27", false),
            ("localhost:5000/a/b", true),
            ("localhost:5000/a/b:1", false),
            ("Nginx", false),
            ("HOST/nginx", true),
            ("a b", false),
            ("", false),
            (digest.as_str(), false),
            ("a__b/c-d.e", true),
            ("a..b", false),
        ] {
            assert_eq!(is_latest(image), latest, "{image}");
        }
    }
}

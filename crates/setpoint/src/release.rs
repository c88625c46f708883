//! `setpoint fleet keys` and `setpoint fleet sign`: whose word vehicles take, and what was released. Neither talks to anybody: the keys
//! belong on a machine without a network.

use std::io::Read;
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use ring::digest::{Context, SHA256};
use serde_json::json;
use setpoint_fleet::hub::serve::root_file;
use setpoint_fleet::kinds::firmware_name;
use setpoint_fleet_protocol::hex;
use setpoint_fleet_protocol::metadata::{
    Key, METADATA_BYTES_MAX, Role, Root, SigningKey, Target, Targets, Trust, sign,
};

use crate::arguments::{KeysArguments, SignArguments};
use crate::failure::{Failure, say};
use crate::hub;

/// Bytes of an image that are read at a time.
const CHUNK: usize = 64 * 1024;

/// Makes the keys of a fleet and the root metadata that vehicles are made with.
pub fn keys(asked: &KeysArguments) -> Result<(), Failure> {
    let unable = |error| Failure::new(format!("can't write to {}", asked.out.display()), error);
    std::fs::create_dir_all(&asked.out).map_err(unable)?;
    if asked.root_threshold == 0 || asked.root_threshold > asked.root_keys {
        return Err(Failure::usage("can't make a root", "its threshold is from 1 to the number of its keys"));
    }
    let before = asked.after.as_deref().map(|file| Before::read(file, &asked.signed_by)).transpose()?;
    let names: Vec<String> = (1..=asked.root_keys).map(|number| format!("root-{number}.key")).collect();
    let roots = names.iter().map(|name| new_key(&asked.out.join(name))).collect::<Result<Vec<_>, _>>()?;
    let targets = match &asked.targets {
        Some(file) => hub::signing_key(file)?,
        None => new_key(&asked.out.join("targets.key"))?,
    };
    let director = match &asked.director {
        Some(file) => hub::signing_key(file)?,
        None => new_key(&asked.out.join("director.key"))?,
    };
    let public: Vec<Key> = roots.iter().map(SigningKey::public).collect();
    let roles = [
        (Role::Root, &public[..], usize::from(asked.root_threshold)),
        (Role::Targets, &[targets.public()], 1),
        (Role::Director, &[director.public()], 1),
    ];
    let version = before.as_ref().map_or(1, |before| before.trust.version() + 1);
    let root = Root::new(version, &in_days(asked.days), &roles);
    let signers = roots.iter().chain(before.iter().flat_map(|before| &before.keys));
    let signed = sign(&root, &signers.collect::<Vec<_>>()).unwrap_or_default();
    if let Some(folder) = &asked.store {
        let unable = |error| Failure::new(format!("can't write to {}", folder.display()), error);
        std::fs::create_dir_all(folder).map_err(unable)?;
        std::fs::write(folder.join(root_file(version)), &signed).map_err(unable)?;
    }
    let file = asked.out.join("root.json");
    std::fs::write(&file, signed + "\n").map_err(unable)?;
    say(&format!(
        "wrote {}, which vehicles are made with, and the keys beside it: keep those of root and targets offline, and give the director's \
         to the hub with --director-key",
        file.display()
    ));
    Ok(())
}

/// The root that another one follows, with enough of its keys.
struct Before {
    trust: Trust,
    keys: Vec<SigningKey>,
}

impl Before {
    /// Reads it, and tries whether the keys are enough before anything is made.
    fn read(file: &Path, keys: &[PathBuf]) -> Result<Before, Failure> {
        let text = std::fs::read_to_string(file);
        let text = text.map_err(|error| Failure::usage(format!("can't read {}", file.display()), error))?;
        let trust = Trust::pinned(&text)
            .map_err(|refusal| Failure::usage(format!("can't use {}", file.display()), refusal.to_string()))?;
        let keys = keys.iter().map(|file| hub::signing_key(file)).collect::<Result<Vec<_>, _>>()?;
        let public: Vec<Key> = keys.iter().map(SigningKey::public).collect();
        let trial = Root::new(trust.version() + 1, &in_days(1), &[(Role::Root, &public, public.len())]);
        let signed = sign(&trial, &keys.iter().collect::<Vec<_>>()).unwrap_or_default();
        match trust.followed_by(&signed, Timestamp::now()) {
            Ok(_) => Ok(Before { trust, keys }),
            Err(refusal) => Err(Failure::usage("can't make the next root", refusal.to_string())
                .hint("give as many keys of the root before as it asks for, each with `--signed-by`")),
        }
    }
}

/// Signs an image, and prints the Firmware that tells of it.
pub fn release(asked: &SignArguments) -> Result<(), Failure> {
    let unable = |error| Failure::new(format!("can't read {}", asked.image.display()), error);
    let (length, sha256) = digest(&asked.image).map_err(unable)?;
    let keys = asked.key.iter().map(|file| hub::signing_key(file)).collect::<Result<Vec<_>, _>>()?;
    let name = asked.target.clone().unwrap_or_else(|| asked.version.clone());
    let target = Target {
        version: asked.version.clone(),
        length,
        sha256: sha256.clone(),
        hardware_ids: asked.hardware.clone(),
        release_counter: asked.counter,
    };
    let targets = Targets::of(asked.counter, &in_days(asked.days), &name, target);
    let signed = sign(&targets, &keys.iter().collect::<Vec<_>>()).filter(|text| text.len() <= METADATA_BYTES_MAX);
    let signed = signed.ok_or_else(|| {
        Failure::usage("can't sign it", format!("its metadata would be longer than {METADATA_BYTES_MAX} bytes"))
    })?;
    if let Some(folder) = &asked.store {
        let unable = |error| Failure::new(format!("can't write to {}", folder.display()), error);
        std::fs::create_dir_all(folder).map_err(unable)?;
        std::fs::copy(&asked.image, folder.join(&sha256)).map_err(unable)?;
    }
    let url = asked.url.clone().unwrap_or_else(|| format!("/v1/firmware/{sha256}"));
    let firmware = json!({
        "apiVersion": "fleet.setpoint.dev/v1alpha1", "kind": "Firmware",
        "metadata": {"name": firmware_name(&asked.version)},
        "spec": {
            "version": asked.version, "releaseCounter": asked.counter, "hardwareIds": asked.hardware,
            "artifacts": [{"url": url, "size": length, "sha256": sha256}], "targetName": name, "signed": signed,
        },
    });
    say(&serde_json::to_string_pretty(&firmware).unwrap_or_default());
    Ok(())
}

/// A key in a file that wasn't there before: nobody loses one to a command that was given twice.
fn new_key(file: &Path) -> Result<SigningKey, Failure> {
    if file.exists() {
        return Err(Failure::usage(format!("can't write {}", file.display()), "there is a key already"));
    }
    hub::new_seed(file)?;
    hub::signing_key(file)
}

fn digest(file: &PathBuf) -> std::io::Result<(u64, String)> {
    let (mut file, mut context, mut length) = (std::fs::File::open(file)?, Context::new(&SHA256), 0);
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = file.read(&mut chunk)?;
        if count == 0 {
            return Ok((length, hex::encode(context.finish().as_ref())));
        }
        context.update(&chunk[..count]);
        length += count as u64;
    }
}

fn in_days(days: u16) -> String {
    let span = SignedDuration::from_hours(24 * i64::from(days));
    let at = Timestamp::now().saturating_add(span).unwrap_or(Timestamp::MAX);
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

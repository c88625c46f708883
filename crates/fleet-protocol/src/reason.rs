//! Why an upgrade failed, in one word each: what a vehicle reports and controllers decide by.

/// The download broke off too often, or the server failed.
pub const DOWNLOAD_FAILED: &str = "DownloadFailed";
/// The artifact isn't where the firmware says.
pub const ARTIFACT_NOT_FOUND: &str = "ArtifactNotFound";
/// The bytes aren't those that were released.
pub const DIGEST_MISMATCH: &str = "DigestMismatch";
/// The artifact has another length than was released.
pub const LENGTH_MISMATCH: &str = "LengthMismatch";
/// A signature is wrong, or not by a key of its role.
pub const SIGNATURE_INVALID: &str = "SignatureInvalid";
/// Fewer keys signed than the role asks for.
pub const THRESHOLD_NOT_MET: &str = "ThresholdNotMet";
/// Metadata that can't be read.
pub const METADATA_MALFORMED: &str = "MetadataMalformed";
/// Metadata whose time is over.
pub const METADATA_EXPIRED: &str = "MetadataExpired";
/// Metadata older than what the vehicle has seen.
pub const METADATA_REPLAYED: &str = "MetadataReplayed";
/// The firmware is for other hardware.
pub const WRONG_HARDWARE: &str = "WrongHardware";
/// The director's statement is for another vehicle.
pub const WRONG_VEHICLE: &str = "WrongVehicle";
/// The firmware's release counter is lower than the one that runs.
pub const DOWNGRADE: &str = "Downgrade";
/// What the director assigned isn't what was released.
pub const NOT_RELEASED: &str = "NotReleased";
/// The hook that installs said no.
pub const INSTALL_FAILED: &str = "InstallFailed";
/// The new firmware didn't start.
pub const BOOT_FAILED: &str = "BootFailed";
/// The new firmware started and is not well.
pub const HEALTH_CHECK_FAILED: &str = "HealthCheckFailed";
/// The new firmware started, and the vehicle didn't reach a hub in time: it may be where there is no network.
pub const HUB_UNREACHABLE: &str = "HubUnreachable";
/// A gate of the policy can't be read.
pub const GATE_INVALID: &str = "GateInvalid";

/// Those that no second try mends: only another spec, firmware or signature does.
const PERMANENT: [&str; 13] = [
    ARTIFACT_NOT_FOUND,
    DIGEST_MISMATCH,
    LENGTH_MISMATCH,
    SIGNATURE_INVALID,
    THRESHOLD_NOT_MET,
    METADATA_MALFORMED,
    METADATA_EXPIRED,
    METADATA_REPLAYED,
    WRONG_HARDWARE,
    WRONG_VEHICLE,
    DOWNGRADE,
    NOT_RELEASED,
    GATE_INVALID,
];

/// Whether a second try with the same firmware would fail for the same reason.
#[must_use]
pub fn is_permanent(reason: &str) -> bool {
    PERMANENT.contains(&reason)
}

//! The command line.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use setpoint_apiserver::Plugin;
use setpoint_controllers::{Choice, ChoiceError};

use crate::audit::AuditArguments;
use crate::failure::Failure;
use crate::migrate::MigrateArguments;
use crate::sealing::SealArguments;
use crate::storage::StoreArguments;
use setpoint_cli::FormArguments;

/// A Kubernetes-compatible control plane in one binary.
#[derive(Parser)]
#[command(
    name = "setpoint",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  setpoint up                              start on this machine, with data in ~/.local/share/setpoint
  setpoint up --listen 127.0.0.1:0         the same on any free port
  setpoint up --nodes 3                    the same with three simulated nodes
  setpoint server --data-dir ./data        the API server alone
  setpoint controllers --kubeconfig FILE   the controllers alone, against any Kubernetes API server
  setpoint get pods -A                     what is there; also apply, delete, events and wait, as in kubectl
  setpoint why deploy/web                  why an object is not as it should be; also tree and timeline
  setpoint who-can delete pods             who may, and by which role
  setpoint fleet why car-7                 what holds a vehicle
  setpoint server --store etcd://10.0.0.1:2379,10.0.0.2:2379
                                           the same on etcd, as one of several
  setpoint migrate --from ./data --to etcd://10.0.0.1:2379
                                           move a stopped server's data to etcd
  setpoint backup cluster.backup           keep a copy of all data, also while the server runs
  setpoint verify --data-dir ./data        check every record of a stopped server's data"
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run the control plane on this machine
    #[command(after_help = "\
Examples:
  setpoint up                                       with data in ~/.local/share/setpoint, at port 6443
  setpoint up --nodes 3                             with three simulated nodes, so that pods run
  setpoint up --data-dir ./data --listen :0         elsewhere, at any free port
  setpoint up --controllers '*,-cronjob'            without one of the controllers")]
    Up(UpArguments),
    /// Run the API server alone
    #[command(after_help = "\
Examples:
  setpoint server --data-dir ./data
  setpoint server --store etcd://10.0.0.1:2379,10.0.0.2:2379")]
    Server(ServerArguments),
    /// Run the controllers alone, against any Kubernetes API server
    #[command(after_help = "\
Examples:
  setpoint controllers --kubeconfig admin.kubeconfig
  setpoint controllers --controllers garbagecollector,namespace")]
    Controllers(ControllersArguments),
    /// Run the scheduler alone, against any Kubernetes API server
    #[command(after_help = "\
Examples:
  setpoint scheduler --kubeconfig admin.kubeconfig
  setpoint scheduler --config profiles.yaml")]
    Scheduler(SchedulerArguments),
    /// Run simulated nodes alone, against any Kubernetes API server
    #[command(after_help = "\
Examples:
  setpoint node --simulated 100
  setpoint node --simulated 10 --name large --cpu 64 --memory 256Gi")]
    Node(NodeArguments),
    /// Look at a fleet, let vehicles into it, or simulate one
    #[command(after_help = "\
Examples:
  setpoint fleet status                             how all vehicles fare
  setpoint fleet why car-7                          what holds one
  setpoint fleet simulate --vehicles 100            a fleet to try things with")]
    Fleet(FleetArguments),
    /// Run the hub alone, which vehicles connect to
    #[command(after_help = "\
Examples:
  setpoint hub --kubeconfig admin.kubeconfig --listen 0.0.0.0:7443 --reached-by hub.example
  setpoint hub --firmware /srv/firmware --director-key director.key")]
    Hub(HubArguments),
    /// Encrypt what is encrypted in the data directory of a stopped server, or in etcd, with a new key
    #[command(after_help = "\
Examples:
  setpoint rotate-keys                              the old keys still read old backups
  setpoint rotate-keys --drop-old")]
    RotateKeys {
        #[command(flatten)]
        data: DataArguments,
        #[command(flatten)]
        store: StoreArguments,
        #[command(flatten)]
        seal: SealArguments,
        /// Forget the keys before it: backups that they sealed can't be restored any more
        #[arg(long)]
        drop_old: bool,
    },
    /// Look at the certificates of a data directory, or let another authority sign them
    #[command(after_help = "\
Examples:
  setpoint certs status                    who signs, and until when each certificate lasts
  setpoint certs rotate                    a new authority signs; the one before is trusted as well
  setpoint certs retire                    the one before is trusted no more")]
    Certs {
        #[command(subcommand)]
        command: CertsCommand,
    },
    /// Check every record in the data directory of a stopped server, or every object in etcd
    #[command(after_help = "\
Examples:
  setpoint verify
  setpoint verify --data-dir ./data
  setpoint verify --store etcd://10.0.0.1:2379")]
    Verify {
        #[command(flatten)]
        data: DataArguments,
        #[command(flatten)]
        store: StoreArguments,
    },
    /// Move everything from one store to another: from a data directory to etcd, or back
    #[command(after_help = "\
Examples:
  setpoint migrate --from /var/lib/setpoint --to etcd://10.0.0.1:2379
  setpoint migrate --from etcd://10.0.0.1:2379 --to ./data")]
    Migrate(MigrateArguments),
    /// Write everything in a data directory or in etcd to one file; the server may run
    #[command(after_help = "\
Examples:
  setpoint backup cluster.backup                    pki/secrets.keys of the data directory belongs to it
  setpoint backup --data-dir ./data cluster.backup
  setpoint backup --store etcd://10.0.0.1:2379 cluster.backup")]
    Backup {
        #[command(flatten)]
        data: DataArguments,
        #[command(flatten)]
        store: StoreArguments,
        #[command(flatten)]
        seal: SealArguments,
        /// The file to write; it must not exist
        file: PathBuf,
        #[command(flatten)]
        form: FormArguments,
    },
    /// Make a new data directory from a backup, or fill an empty etcd from it
    #[command(after_help = "\
Examples:
  setpoint restore --data-dir ./other cluster.backup
  setpoint restore --store etcd://10.0.0.1:2379 cluster.backup
  
  Put pki/secrets.keys of the old data directory into the new one first, if there are Secrets.")]
    Restore {
        #[command(flatten)]
        data: DataArguments,
        #[command(flatten)]
        store: StoreArguments,
        #[command(flatten)]
        seal: SealArguments,
        /// The backup
        file: PathBuf,
    },
    #[command(flatten)]
    People(setpoint_cli::Command),
    /// Print the completions of a shell
    #[command(after_help = "\
Examples:
  source <(setpoint completion bash)                                 in ~/.bashrc
  setpoint completion fish > ~/.config/fish/completions/setpoint.fish")]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    #[command(hide = true)]
    Manual {
        /// Where to write them
        folder: PathBuf,
    },
    /// Print the version
    #[command(after_help = "\
Examples:
  setpoint version")]
    Version {
        #[command(flatten)]
        form: FormArguments,
    },
}

#[derive(Subcommand)]
pub enum CertsCommand {
    /// Print every certificate, who signed it, and when it ends
    #[command(after_help = "\
Examples:
  setpoint certs status
  setpoint certs status --data-dir /var/lib/setpoint -o json")]
    Status {
        #[command(flatten)]
        place: PlaceArguments,
        #[command(flatten)]
        form: FormArguments,
    },
    /// Make a new authority. A server that runs signs with it at once, and trusts the one before as well
    #[command(after_help = "\
Examples:
  setpoint certs rotate
  setpoint certs rotate --store etcd://10.0.0.1:2379,10.0.0.2:2379")]
    Rotate {
        #[command(flatten)]
        place: PlaceArguments,
    },
    /// Trust the authority before the present one no more. Who still has a certificate by it, or knows only it, is cut off
    #[command(after_help = "\
Examples:
  setpoint certs retire")]
    Retire {
        #[command(flatten)]
        place: PlaceArguments,
    },
}

impl Command {
    /// Whether it runs until it is stopped, and so holds keys and secrets in memory for long.
    pub fn is_lasting(&self) -> bool {
        match self {
            Command::Up(_)
            | Command::Server(_)
            | Command::Controllers(_)
            | Command::Scheduler(_)
            | Command::Node(_)
            | Command::Hub(_) => true,
            Command::Fleet(_)
            | Command::RotateKeys { .. }
            | Command::Certs { .. }
            | Command::Verify { .. }
            | Command::Migrate(_)
            | Command::Backup { .. }
            | Command::Restore { .. }
            | Command::People(_)
            | Command::Completion { .. }
            | Command::Manual { .. }
            | Command::Version { .. } => false,
        }
    }
}

impl Command {
    /// The form of the answer that was asked for, of the commands of this crate that have one and leave failures to be told in it.
    pub fn form(&self) -> Option<FormArguments> {
        match self {
            Command::Version { form } | Command::Backup { form, .. } => Some(*form),
            Command::Fleet(arguments) => match &arguments.command {
                FleetCommand::Status { form } | FleetCommand::Why { form, .. } | FleetCommand::Plan { form, .. } => {
                    Some(*form)
                }
                _ => None,
            },
            _ => None,
        }
    }
}

/// Whose certificates.
#[derive(Args)]
pub struct PlaceArguments {
    #[command(flatten)]
    pub data: DataArguments,
    #[command(flatten)]
    pub store: StoreArguments,
}

#[derive(Args)]
pub struct DataArguments {
    /// Where the data is [default: $XDG_DATA_HOME/setpoint or ~/.local/share/setpoint]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl DataArguments {
    /// The folder of all data.
    pub fn folder(&self) -> Result<PathBuf, Failure> {
        if let Some(folder) = &self.data_dir {
            if folder.is_file() {
                return Err(Failure::new(format!("can't keep data in {}", folder.display()), "it is a file")
                    .hint("choose a folder with `--data-dir`; one that is not there is made"));
            }
            return Ok(folder.clone());
        }
        let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = variable("XDG_DATA_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/share")));
        base.map(|base| base.join("setpoint")).ok_or_else(|| {
            Failure::usage("can't choose a data directory", "neither XDG_DATA_HOME nor HOME is set")
                .hint("choose one with `--data-dir`")
        })
    }
}

#[derive(Args)]
pub struct ServerArguments {
    #[command(flatten)]
    pub data: DataArguments,
    /// Where to listen; port 0 picks a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443", value_parser = address)]
    pub listen: SocketAddr,
    /// Where to write the administrator's kubeconfig [default: DIR/admin.kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub store: StoreArguments,
    #[command(flatten)]
    pub seal: SealArguments,
    #[command(flatten)]
    pub audit: AuditArguments,
    /// Rules of admission that are left out: ServiceAccount, DefaultTolerationSeconds, DefaultStorageClass, StorageObjectInUseProtection,
    /// DenyServiceExternalIPs
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<Plugin>,
    /// Rules of admission that the API server alone leaves out, as kube-apiserver does: DenyServiceExternalIPs
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<Plugin>,
    /// How much to log to stderr [default: $SETPOINT_LOG or info]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub log_level: Option<LogLevel>,
    /// Answer /debug/pprof, as far as this program was built to: where time and memory go
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub profiling: bool,
}

#[derive(Args)]
pub struct UpArguments {
    #[command(flatten)]
    pub server: ServerArguments,
    /// How many simulated nodes there are
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = nodes)]
    pub nodes: usize,
    /// Which controllers run: `*` for all, `name` for one, `-name` for all but one
    #[arg(long, value_name = "LIST", default_value = "*", allow_hyphen_values = true, value_parser = controllers)]
    pub controllers: Choice,
    #[command(flatten)]
    pub settings: SettingsArguments,
    /// Where vehicles connect [default: port 7443 of the same address, or a free one; DIR/hub.url tells which]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub hub_listen: Option<SocketAddr>,
    /// Run no hub
    #[arg(long)]
    pub no_hub: bool,
    /// The hub's name, which no other hub has [default: this machine's; on etcd one that is kept in DIR/hub.name]
    #[arg(long, value_name = "NAME")]
    pub hub_name: Option<String>,
    #[command(flatten)]
    pub hub: HubOptions,
}

/// Settings of controllers and of the scheduler, which docs/configuration.md tells of.
#[derive(Args, Default)]
pub struct SettingsArguments {
    /// A YAML or JSON file with settings of the controllers and of the scheduler
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// One setting, in the place of what file and environment say: `queue.qps=5`, `controllers.job-controller.workers=2`; may be given
    /// more than once
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// How a hub works.
#[derive(Args, Clone, Debug)]
pub struct HubOptions {
    /// Where firmware is that the hub hands out itself, in files named by their SHA-256
    #[arg(long, value_name = "DIR")]
    pub firmware: Option<PathBuf>,
    /// Bytes of firmware a second, over all vehicles
    #[arg(long, value_name = "BYTES")]
    pub bytes_per_second: Option<u64>,
    /// The director's key, in hexadecimal: assignments are signed with it
    #[arg(long, value_name = "FILE")]
    pub director_key: Option<PathBuf>,
    /// A name or address that vehicles reach the hub by; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub reached_by: Vec<String>,
    /// Where vehicles find it; published in the cluster [default: the first --reached-by, or its own address, with its port]
    #[arg(long, value_name = "URL", value_parser = hub_url)]
    pub hub_url: Option<String>,
    /// How often vehicles are asked whether they are there; after three times without an answer they are away
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub ping_seconds: u32,
}

/// What every part takes that runs alone.
#[derive(Args)]
pub struct AloneArguments {
    /// How to reach the API server [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// How much to log to stderr [default: $SETPOINT_LOG or info]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub log_level: Option<LogLevel>,
    /// Answer /debug/pprof, as far as this program was built to: where time and memory go
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    pub profiling: bool,
}

#[derive(Args)]
pub struct ControllersArguments {
    #[command(flatten)]
    pub alone: AloneArguments,
    /// Which controllers run: `*` for all, `name` for one, `-name` for all but one
    #[arg(long, value_name = "LIST", default_value = "*", allow_hyphen_values = true, value_parser = controllers)]
    pub controllers: Choice,
    #[command(flatten)]
    pub settings: SettingsArguments,
    /// Where to serve /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:10257", value_parser = address)]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub election: ElectionArguments,
    #[command(flatten)]
    pub authorities: AuthorityArguments,
}

/// Whose certificates and tokens controllers publish and make.
#[derive(Args, Default)]
pub struct AuthorityArguments {
    /// Whom pods trust when they call the API server, in PEM; published in every namespace [default: whom the kubeconfig trusts]
    #[arg(long, value_name = "FILE")]
    pub root_ca_file: Option<PathBuf>,
    /// The authority that signs requests for certificates, in PEM, such as pki/ca.pem of a server's data directory; without it they
    /// are left to others
    #[arg(long, value_name = "FILE")]
    pub cluster_signing_cert_file: Option<PathBuf>,
    /// Its key, in PEM [default: in the same file]
    #[arg(long, value_name = "FILE", requires = "cluster_signing_cert_file")]
    pub cluster_signing_key_file: Option<PathBuf>,
    /// The API server's key for tokens, in PEM, such as pki/service-account.pem of a server's data directory; without it Secrets of
    /// the type kubernetes.io/service-account-token stay empty
    #[arg(long, value_name = "FILE")]
    pub service_account_private_key_file: Option<PathBuf>,
}

/// How one copy of several is chosen.
#[derive(Args)]
pub struct ElectionArguments {
    /// Work without an election: only safe if no other copy runs
    #[arg(long)]
    pub no_leader_election: bool,
    /// How long the others wait for a leader that is silent [default: 15s, or what the settings say]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub leader_elect_lease_duration: Option<Duration>,
    /// How long a leader goes on that can't renew its lease [default: 10s, or what the settings say]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub leader_elect_renew_deadline: Option<Duration>,
    /// How long to wait between attempts to get or renew the lease [default: 2s, or what the settings say]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub leader_elect_retry_period: Option<Duration>,
}

#[derive(Args)]
pub struct SchedulerArguments {
    #[command(flatten)]
    pub alone: AloneArguments,
    #[command(flatten)]
    pub settings: SettingsArguments,
    /// Where to serve /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:10259", value_parser = address)]
    pub listen: SocketAddr,
    #[command(flatten)]
    pub election: ElectionArguments,
}

#[derive(Args)]
pub struct NodeArguments {
    #[command(flatten)]
    pub alone: AloneArguments,
    /// How many simulated nodes there are
    #[arg(long, value_name = "N", value_parser = nodes)]
    pub simulated: usize,
    /// What the names of the nodes begin with: processes on one API server need different ones
    #[arg(long, value_name = "PREFIX", default_value = "simulated")]
    pub name: String,
    /// The processors of each node
    #[arg(long, value_name = "QUANTITY", default_value = "8")]
    pub cpu: String,
    /// The memory of each node
    #[arg(long, value_name = "QUANTITY", default_value = "32Gi")]
    pub memory: String,
    /// Where to serve /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:10248", value_parser = address)]
    pub listen: SocketAddr,
}

#[derive(Args)]
pub struct FleetArguments {
    #[command(subcommand)]
    pub command: FleetCommand,
    /// How to reach the API server [default: $KUBECONFIG, ~/.kube/config, or that of `setpoint up`]
    #[arg(long, value_name = "FILE", global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// Whose vehicles
    #[arg(long, short, value_name = "NAMESPACE", default_value = "default", global = true)]
    pub namespace: String,
}

#[derive(Subcommand)]
pub enum FleetCommand {
    /// How many vehicles are where, which versions they run, and how far rollouts are
    #[command(after_help = "\
Examples:
  setpoint fleet status
  setpoint fleet status -n depot -o json")]
    Status {
        #[command(flatten)]
        form: FormArguments,
    },
    /// Why a vehicle is where it is, in one sentence
    #[command(after_help = "\
Examples:
  setpoint fleet why car-7")]
    Why {
        /// Its name
        vehicle: String,
        #[command(flatten)]
        form: FormArguments,
    },
    /// What a rollout would do from here: whom each step means, bytes, times, and who can't get there
    #[command(after_help = "\
Examples:
  setpoint fleet plan spring
  setpoint fleet plan spring -o json")]
    Plan {
        /// Its name
        rollout: String,
        #[command(flatten)]
        form: FormArguments,
    },
    /// Let a rollout go on at once: past the rest of a soak, or to a step that has to be approved
    #[command(after_help = "\
Examples:
  setpoint fleet promote spring")]
    Promote {
        /// Its name
        rollout: String,
    },
    /// Write what a vehicle needs to connect: a key, a certificate and a configuration
    #[command(after_help = "\
Examples:
  setpoint fleet enrol car-7 --root keys/root.json --initial-version 1.0.0 --out car-7
  setpoint fleet enrol car-7 --with-token --unsigned --initial-version 1.0.0 --out car-7
  setpoint fleet enrol car-7 --hub https://hub.example:7443 --with-token --unsigned --out car-7")]
    Enrol(EnrolArguments),
    /// Print a token with which a vehicle gets a certificate, once
    #[command(after_help = "\
Examples:
  setpoint fleet token car-7 --hours 2")]
    Token {
        /// Its name
        vehicle: String,
        /// How long it can be used
        #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..))]
        hours: u16,
    },
    /// Let no certificate of a vehicle count any more, and end its sessions
    #[command(after_help = "\
Examples:
  setpoint fleet revoke car-7
  setpoint fleet revoke car-7 --undo")]
    Revoke {
        /// Its name
        vehicle: String,
        /// Let those count again that did
        #[arg(long)]
        undo: bool,
    },
    /// Make the keys of a fleet, and the root metadata that vehicles are made with
    #[command(after_help = "\
Examples:
  setpoint fleet keys --out keys --director ~/.local/share/setpoint/pki/director.key
  setpoint fleet keys --out keys-2 --after keys/root.json --signed-by keys/root-1.key --signed-by keys/root-2.key")]
    Keys(KeysArguments),
    /// Sign an image, and print the Firmware that tells of it
    #[command(after_help = "\
Examples:
  setpoint fleet sign image.bin --version 1.1.0 --counter 2 --hardware ecu-1 --key keys/targets.key")]
    Sign(SignArguments),
    /// Run any number of vehicles in this process, against a real hub
    #[command(after_help = "\
Examples:
  setpoint fleet simulate --vehicles 100
  setpoint fleet simulate --vehicles 1000 --speed 10 --faults drop=0.01,bad=2.0.0")]
    Simulate(SimulateArguments),
}

#[derive(Args)]
pub struct EnrolArguments {
    /// Its name
    pub vehicle: String,
    /// Where to write it
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Where its hub is: https://HOST:PORT; may be given more than once [default: where hubs say that they are]
    #[arg(long, value_name = "URL", value_parser = hub_url)]
    pub hub: Vec<String>,
    /// Write a token in the place of key and certificate: the vehicle makes its key itself
    #[arg(long)]
    pub with_token: bool,
    /// The version that it was made with [default: what it runs, if it has said so]
    #[arg(long, value_name = "VERSION")]
    pub initial_version: Option<String>,
    /// The root metadata that it believes, such as `setpoint fleet keys` writes
    #[arg(long, value_name = "FILE")]
    pub root: Option<PathBuf>,
    /// It believes its hub: signatures are not checked
    #[arg(long, conflicts_with = "root")]
    pub unsigned: bool,
}

#[derive(Args)]
pub struct KeysArguments {
    /// Where to write them
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// How many keys the root has
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub root_keys: u8,
    /// How many of them have to sign the next root
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub root_threshold: u8,
    /// The director's key that a hub has already, such as pki/director.key of a data directory [default: a new one]
    #[arg(long, value_name = "FILE")]
    pub director: Option<PathBuf>,
    /// The key of the release team that it has already [default: a new one]
    #[arg(long, value_name = "FILE")]
    pub targets: Option<PathBuf>,
    /// The root that this one follows, whose keys lose their word: vehicles that believe it take the new one over their hub
    #[arg(long, value_name = "FILE", requires = "signed_by")]
    pub after: Option<PathBuf>,
    /// A key of the root before; can be given again, for as many as that root asks for
    #[arg(long, value_name = "FILE", requires = "after")]
    pub signed_by: Vec<PathBuf>,
    /// Where to put a copy for hubs to hand out: the folder that `setpoint hub --firmware` names
    #[arg(long, value_name = "DIR", requires = "after")]
    pub store: Option<PathBuf>,
    /// For how many days the root counts
    #[arg(long, value_name = "N", default_value_t = 3650)]
    pub days: u16,
}

#[derive(Args)]
pub struct SignArguments {
    /// The image
    pub image: PathBuf,
    /// The version that it brings
    #[arg(long)]
    pub version: String,
    /// Its release counter: a vehicle takes nothing with a lower one than it has
    #[arg(long, value_name = "N")]
    pub counter: u64,
    /// The hardware that it is for; can be given again
    #[arg(long, value_name = "ID", required = true)]
    pub hardware: Vec<String>,
    /// A key of the release team; can be given again
    #[arg(long, value_name = "FILE", required = true)]
    pub key: Vec<PathBuf>,
    /// What the metadata calls it [default: the version]
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// Where vehicles find it [default: at the hub]
    #[arg(long)]
    pub url: Option<String>,
    /// Where to put a copy for hubs to hand out: the folder that `setpoint hub --firmware` names
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// For how many days the signature counts
    #[arg(long, value_name = "N", default_value_t = 365)]
    pub days: u16,
}

#[derive(Args)]
pub struct SimulateArguments {
    /// How many vehicles there are
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = vehicles)]
    pub vehicles: usize,
    /// What their names begin with, and the name of their gateway
    #[arg(long, default_value = "sim")]
    pub prefix: String,
    /// Their hardware
    #[arg(long, default_value = "sim-1")]
    pub hardware: String,
    /// What they run at first
    #[arg(long, value_name = "VERSION", default_value = "1.0.0")]
    pub initial_version: String,
    /// How fast things happen on them: 1 for about half a minute an upgrade
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub speed: f64,
    /// What goes wrong, such as drop=0.01,crash=0.02,offline=0.1,bad=2.0.0
    #[arg(long, value_name = "LIST", default_value = "", value_parser = setpoint_fleet::simulate::Faults::parse)]
    pub faults: setpoint_fleet::simulate::Faults,
    /// Repeats a run
    #[arg(long)]
    pub seed: Option<u64>,
    /// Where the hub is; with --sockets, hubs, each named with a flag of its own [default: where hubs say that they are]
    #[arg(long, value_name = "URL")]
    pub hub: Vec<String>,
    /// Each vehicle enrols with a token, and has a certificate and a connection of its own, in place of one gateway for all
    #[arg(long)]
    pub sockets: bool,
}

/// How many vehicles one process simulates at most: what a gigabyte holds.
const VEHICLES_MAX: usize = 200_000;

fn vehicles(text: &str) -> Result<usize, String> {
    let count: Option<usize> = text.parse().ok();
    count.filter(|count| *count <= VEHICLES_MAX).ok_or_else(|| format!("expected a number from 0 to {VEHICLES_MAX}"))
}

#[derive(Args)]
pub struct HubArguments {
    #[command(flatten)]
    pub alone: AloneArguments,
    /// Where vehicles connect
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7443", value_parser = address)]
    pub listen: SocketAddr,
    /// The hub's name, which no other hub has and which it keeps over restarts [default: this machine's name]
    #[arg(long)]
    pub name: Option<String>,
    /// The hub's certificate in PEM [default: one that the API server's authority signs]
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// The key of the certificate in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// The authority of vehicles' certificates in PEM [default: that of the kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    #[command(flatten)]
    pub hub: HubOptions,
    /// Where to serve /healthz, /readyz and /metrics
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:10260", value_parser = address)]
    pub probes: SocketAddr,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// A time as kube's programs take it: `15s`, `1m30s`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a time such as 15s or 1m30s".to_owned();
    let nanos = setpoint_api::time::parse_duration(text).map_err(|_| wrong())?;
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| wrong())
}

/// `https://HOST[:PORT]`, without anything behind it.
fn hub_url(text: &str) -> Result<String, String> {
    let url: http::Uri = text.parse().map_err(|error| format!("it is no URL: {error}"))?;
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
    match (url.scheme_str(), url.authority()) {
        (Some("https"), Some(authority)) if is_bare => Ok(format!("https://{authority}")),
        _ => Err("it has to be https://HOST:PORT".to_owned()),
    }
}

/// The built-in ones and those of the fleet.
fn controllers(text: &str) -> Result<Choice, ChoiceError> {
    Choice::parse_among(text, &setpoint_fleet::CONTROLLERS)
}

fn nodes(text: &str) -> Result<usize, String> {
    let most = setpoint_node::simulated::NODES_MAX;
    let count: Option<usize> = text.parse().ok();
    count.filter(|count| *count <= most).ok_or_else(|| format!("expected a number from 0 to {most}"))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let port = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':'));
    match port.map(str::parse) {
        Some(Ok(port)) => Ok(SocketAddr::new(local, port)),
        Some(Err(_)) => Err("the port is not a number from 0 to 65535".into()),
        None => text.parse().map_err(|_| "expected an IP address and a port, such as 127.0.0.1:6443".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<&str, ()>) {
        let found = address(text).map(|address| address.to_string()).map_err(|_| ());
        assert_eq!(found.as_deref(), expected.as_ref().map(|text| *text).map_err(|_| &()), "{text}");
    }

    #[test]
    fn an_address_is_an_ip_and_a_port_and_local_when_left_out() {
        check("127.0.0.1:6443", Ok("127.0.0.1:6443"));
        check("[::1]:0", Ok("[::1]:0"));
        check(":0", Ok("127.0.0.1:0"));
        check("localhost:7443", Ok("127.0.0.1:7443"));
        check("127.0.0.1", Err(()));
        check(":70000", Err(()));
        check("example.org:6443", Err(()));
    }

    /// The command lines that a command's help shows.
    fn examples(command: &clap::Command) -> Vec<String> {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = help.lines().filter_map(|line| line.strip_prefix("  setpoint "));
        // What stands further to the right says what it does; what is behind an arrow is the shell's.
        let line = |line: &str| line.split("  ").next().and_then(|line| line.split(" > ").next()).map(str::to_owned);
        lines.filter_map(line).collect()
    }

    /// Words as a shell parts them, as far as examples go.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut is_quoted) = (vec![String::new()], false);
        for letter in line.chars() {
            match letter {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(String::new()),
                letter => words.last_mut().expect("it begins with one").push(letter),
            }
        }
        words
    }

    #[test]
    fn every_command_shows_examples_and_they_are_right() {
        use clap::CommandFactory;
        fn walk(command: &clap::Command, path: &str) {
            for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
                let path = format!("{path} {}", inner.get_name());
                let shown = examples(inner);
                assert!(!shown.is_empty(), "{path} shows no examples");
                for line in shown {
                    let words = std::iter::once("setpoint".to_owned()).chain(words(&line));
                    if let Err(error) = Arguments::try_parse_from(words) {
                        panic!("{path} shows `setpoint {line}`: {error}");
                    }
                }
                walk(inner, &path);
            }
        }
        let whole = Arguments::command();
        assert!(examples(&whole).len() > 5);
        walk(&whole, "setpoint");
    }

    #[test]
    fn the_definition_of_the_command_line_holds() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}

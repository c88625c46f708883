//! How commands reach an API server: flags, kubeconfig files, and what to say if there is none.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use kube::config::{
    AuthInfo, Context, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedAuthInfo, NamedCluster, NamedContext,
};

use crate::failure::{Failure, UNREACHABLE};
use crate::request::{Ask, Server, Voice};
use crate::span;
use crate::terminal::{self, Colour};

/// Flags of every command that talks to an API server, named as in kubectl.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArguments {
    /// Whose objects [default: that of the context, or `default`]
    #[arg(long, short, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// How to reach the API server [default: $KUBECONFIG, ~/.kube/config, or that of `setpoint up`]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Which context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Which cluster of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Which user of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Where the API server is, instead of what the kubeconfig says
    #[arg(long, short, value_name = "URL")]
    pub server: Option<String>,
    /// A bearer token, instead of the credentials of the kubeconfig
    #[arg(long, value_name = "TOKEN")]
    pub token: Option<String>,
    /// Whom to trust: the certificates of authorities, in PEM
    #[arg(long, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// Trust any server, whoever it says it is: everything that is sent can be read by it
    #[arg(long, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true",
          action = clap::ArgAction::Set, hide_default_value = true, hide_possible_values = true)]
    pub insecure_skip_tls_verify: bool,
    /// Act as this user
    #[arg(long = "as", value_name = "USER")]
    pub act_as: Option<String>,
    /// Act as a member of this group; may be given more than once
    #[arg(long = "as-group", value_name = "GROUP")]
    pub act_as_group: Vec<String>,
    /// How long one request may take, such as 5s or 1m; 0 for no limit
    #[arg(long, value_name = "TIME", default_value = "0", hide_default_value = true, value_parser = span::parse)]
    pub request_timeout: Duration,
    /// When to use colours
    #[arg(long, value_name = "WHEN", value_enum, default_value_t = Colour::Auto, hide_default_value = true)]
    pub color: Colour,
    /// What to tell of requests on standard error: 6 for what was asked and answered, 7 as lines for curl
    #[arg(long = "v", short = 'v', value_name = "LEVEL", default_value_t = 0, hide_default_value = true)]
    pub verbosity: u8,
}

impl ConnectionArguments {
    /// Reads the kubeconfig and makes a client of it. Nothing is sent yet.
    pub async fn connect(&self) -> Result<Server, Failure> {
        terminal::choose(self.color);
        self.connect_to(self.config().await?)
    }

    /// The same server as somebody else finds it: with this token, or with nothing to show.
    pub async fn connect_with(&self, token: Option<&str>) -> Result<Server, Failure> {
        let mut config = self.config().await?;
        config.auth_info = AuthInfo { token: token.map(|token| token.to_owned().into()), ..AuthInfo::default() };
        ConnectionArguments { act_as: None, act_as_group: Vec::new(), ..self.clone() }.connect_to(config)
    }

    /// The same server for whom the user of this connection acts.
    pub async fn connect_as(&self, user: &str, group: &str) -> Result<Server, Failure> {
        let other =
            ConnectionArguments { act_as: Some(user.to_owned()), act_as_group: vec![group.to_owned()], ..self.clone() };
        other.connect().await
    }

    fn connect_to(&self, mut config: kube::Config) -> Result<Server, Failure> {
        if self.act_as.is_none() && !self.act_as_group.is_empty() {
            return Err(Failure::error("requesting uid, groups or user-extra without impersonating a user")
                .hint("say who with `--as`"));
        }
        if let Some(user) = &self.act_as {
            config.auth_info.impersonate = Some(user.clone());
            config.auth_info.impersonate_groups = Some(self.act_as_group.clone()).filter(|groups| !groups.is_empty());
        }
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let limit = Some(self.request_timeout).filter(|limit| !limit.is_zero());
        let url = config.cluster_url.clone();
        let has_token = config.auth_info.token.is_some() || config.auth_info.token_file.is_some();
        let voice = Voice { verbosity: self.verbosity, has_token };
        // A watch that is quiet is not a connection that is dead.
        config.read_timeout = None;
        let client = kube::Client::try_from(config).map_err(|error| {
            Failure::error(plain(&error)).hint("check the certificates and the address in the kubeconfig")
        })?;
        Ok(Server { client, url, namespace, explicit_namespace: self.namespace.is_some(), limit, voice })
    }

    async fn config(&self) -> Result<kube::Config, Failure> {
        let (read, origin) = self.read()?;
        let mut options =
            KubeConfigOptions { context: self.context.clone(), cluster: self.cluster.clone(), user: self.user.clone() };
        let read = self.overridden(read, &mut options)?;
        let names = contexts(&read);
        kube::Config::from_custom_kubeconfig(read, &options).await.map_err(|error| unusable(&error, &origin, &names))
    }

    /// The kubeconfig and where it came from.
    fn read(&self) -> Result<(Kubeconfig, String), Failure> {
        if let Some(file) = &self.kubeconfig {
            let origin = file.display().to_string();
            return match Kubeconfig::read_from(file) {
                Ok(read) => Ok((read, origin)),
                Err(error) => Err(Failure::error(what_is_wrong(&error))
                    .hint("`setpoint up` says where it writes its kubeconfig")
                    .with_code(UNREACHABLE)),
            };
        }
        let places = places();
        let mut merged: Option<Kubeconfig> = None;
        let mut origin = Vec::new();
        for place in places.iter().filter(|place| place.path.exists()) {
            if merged.is_some() && !place.merges {
                break;
            }
            let failed = |error: KubeconfigError| {
                Failure::error(format!("can't use {}: {}", place.path.display(), what_is_wrong(&error)))
                    .hint("correct the file, or name another with `--kubeconfig`")
            };
            let read = Kubeconfig::read_from(&place.path).map_err(failed)?;
            merged = Some(match merged {
                Some(before) => before.merge(read).map_err(failed)?,
                None => read,
            });
            origin.push(place.path.display().to_string());
        }
        let own = || self.server.is_some().then(|| (Kubeconfig::default(), "the command line".to_owned()));
        merged.map(|read| (read, origin.join(", "))).or_else(own).ok_or_else(|| none_found(&places))
    }

    /// What the flags say instead of the kubeconfig: a copy of the cluster and the user that it would choose, with other values.
    fn overridden(&self, mut read: Kubeconfig, options: &mut KubeConfigOptions) -> Result<Kubeconfig, Failure> {
        let is_other_cluster =
            self.server.is_some() || self.certificate_authority.is_some() || self.insecure_skip_tls_verify;
        if !is_other_cluster && self.token.is_none() {
            return Ok(read);
        }
        let context = options.context.as_ref().or(read.current_context.as_ref());
        let chosen = read.contexts.iter().find(|one| Some(&one.name) == context).and_then(|one| one.context.clone());
        if let (None, Some(name)) = (&chosen, &options.context) {
            return Err(unusable(&KubeconfigError::LoadContext(name.clone()), "the kubeconfig", &contexts(&read)));
        }
        let chosen = chosen.unwrap_or_default();
        let cluster = options.cluster.clone().unwrap_or_else(|| chosen.cluster.clone());
        let user = options.user.clone().or_else(|| chosen.user.clone());
        let mut at = read.clusters.iter().find(|one| one.name == cluster).and_then(|one| one.cluster.clone());
        if is_other_cluster {
            let at = at.get_or_insert_default();
            at.server = self.server.clone().map(with_scheme).or(at.server.take());
            if let Some(file) = &self.certificate_authority {
                at.certificate_authority = Some(file.display().to_string());
                at.certificate_authority_data = None;
            }
            if self.insecure_skip_tls_verify {
                at.insecure_skip_tls_verify = Some(true);
                (at.certificate_authority, at.certificate_authority_data) = (None, None);
            }
        }
        let known = read.auth_infos.iter().find(|one| Some(&one.name) == user.as_ref());
        let mut credentials = known.and_then(|one| one.auth_info.clone()).unwrap_or_default();
        if let Some(token) = &self.token {
            // Who names a token wants to be who it says: a certificate beside it would count first.
            credentials = AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() };
        }
        read.clusters = vec![NamedCluster { name: OVERRIDDEN.to_owned(), cluster: at, ..NamedCluster::default() }];
        read.auth_infos = vec![NamedAuthInfo {
            name: OVERRIDDEN.to_owned(),
            auth_info: Some(credentials),
            ..NamedAuthInfo::default()
        }];
        let namespace = chosen.namespace;
        let context = Context {
            cluster: OVERRIDDEN.to_owned(),
            user: Some(OVERRIDDEN.to_owned()),
            namespace,
            ..Context::default()
        };
        read.contexts =
            vec![NamedContext { name: OVERRIDDEN.to_owned(), context: Some(context), ..NamedContext::default() }];
        read.current_context = Some(OVERRIDDEN.to_owned());
        *options = KubeConfigOptions::default();
        Ok(read)
    }
}

/// Whether the server of a kubeconfig, or of the usual places, answers at all: who is to blame if not is told as by every other command.
pub async fn reach(kubeconfig: Option<&PathBuf>) -> Result<(), Failure> {
    let connection = ConnectionArguments { kubeconfig: kubeconfig.cloned(), ..ConnectionArguments::default() };
    connection.connect().await?.get(Ask::get("/version").quietly()).await?;
    Ok(())
}

/// What the parts of a kubeconfig are called that flags say otherwise.
const OVERRIDDEN: &str = "of the command line";

/// `--server 127.0.0.1:6443` means TLS, as everything here does.
fn with_scheme(server: String) -> String {
    if server.contains("://") { server } else { format!("https://{server}") }
}

/// The names of all contexts.
fn contexts(read: &Kubeconfig) -> String {
    read.contexts.iter().map(|context| context.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// One place where a kubeconfig may be.
struct Place {
    path: PathBuf,
    /// Whether it adds to those before it, as the files of $KUBECONFIG do.
    merges: bool,
}

/// In the order in which they are tried.
fn places() -> Vec<Place> {
    let variable = std::env::var_os("KUBECONFIG").filter(|list| !list.is_empty());
    let mut places: Vec<Place> = match &variable {
        Some(list) => {
            let paths = std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty());
            paths.map(|path| Place { path, merges: true }).collect()
        }
        None => {
            let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config"));
            home.map(|path| Place { path, merges: false }).into_iter().collect()
        }
    };
    if variable.is_none() {
        places.extend(data_folder().map(|folder| Place { path: folder.join("admin.kubeconfig"), merges: false }));
    }
    places
}

/// Where `setpoint up` keeps its data unless it is told otherwise.
pub fn data_folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = variable("XDG_DATA_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/share")));
    base.map(|base| base.join("setpoint"))
}

fn none_found(places: &[Place]) -> Failure {
    let tried: Vec<_> = places.iter().map(|place| place.path.display().to_string()).collect();
    let tried = if tried.is_empty() { "neither KUBECONFIG nor HOME is set".to_owned() } else { tried.join(", ") };
    Failure::new("there is no kubeconfig", format!("tried {tried}"))
        .hint("start a control plane here with `setpoint up`, or name a kubeconfig with `--kubeconfig`")
        .with_code(UNREACHABLE)
}

fn unusable(error: &KubeconfigError, origin: &str, contexts: &str) -> Failure {
    match error {
        KubeconfigError::LoadContext(name) => {
            Failure::error(format!("context {name:?} does not exist")).hint(match contexts {
                "" => format!("{origin} has no contexts"),
                names => format!("{origin} has {names}"),
            })
        }
        KubeconfigError::CurrentContextNotSet => {
            Failure::new(format!("can't use {origin}"), "it has no current context")
                .hint(format!("choose one with `--context`; there are: {contexts}"))
        }
        KubeconfigError::LoadClusterOfContext(name) => {
            Failure::error(format!("cluster {name:?} does not exist")).hint(format!("see the clusters in {origin}"))
        }
        other => Failure::new(format!("can't use {origin}"), what_is_wrong(other))
            .hint("correct it, or name another with `--kubeconfig`"),
    }
    .with_code(UNREACHABLE)
}

/// An error of a kubeconfig in the words of kubectl where it has some.
fn what_is_wrong(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(cause, path) if cause.kind() == std::io::ErrorKind::NotFound => {
            format!("stat {}: no such file or directory", path.display())
        }
        KubeconfigError::ReadConfig(cause, path) => format!("can't read {}: {cause}", path.display()),
        other => plain(other),
    }
}

/// An error with all its causes, each once.
pub fn plain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = inner.source();
    }
    text
}

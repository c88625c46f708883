//! Secrets that hold the token of a service account: they are filled, and go with their account.
//!
//! Tokens in Secrets are the old way: nobody makes such Secrets by itself any more. Who makes one gets a token without an end, which is
//! good for as long as the Secret holds it.

mod secret;

use std::sync::Arc;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use setpoint_runtime::Key;
use setpoint_runtime::cache::{Cached, Informer, Target};
use setpoint_runtime::controller::{Action, Context, Error, Predicate};
use setpoint_runtime::manager::ManagerError;
use setpoint_runtime::retry;

use self::secret::{ACCOUNT, ACCOUNT_UID, CA, NAMESPACE, TOKEN, TYPE, Token};
use crate::Wiring;
use crate::root_ca::{RootCa, Successions};

/// The index of Secrets with a token by the account that they speak for.
const BY_ACCOUNT: &str = "service account";

/// Makes the token that a Secret is to hold.
pub type TokenSigner = Arc<dyn Fn(&ToProve<'_>) -> Result<String, String> + Send + Sync>;

/// What a token is to prove.
#[derive(Clone, Copy, Debug)]
pub struct ToProve<'a> {
    /// Where the Secret and the account are.
    pub namespace: &'a str,
    /// The Secret that holds it.
    pub secret: &'a str,
    /// Whose it is.
    pub account: &'a str,
    /// Which one of that name.
    pub account_uid: &'a str,
}

/// Adds the controller. Without a key it fills no Secret.
pub fn add(wiring: &Wiring<'_>) -> Result<(), ManagerError> {
    let desk = wiring.desk("serviceaccount-token-controller")?;
    let target = Target::of::<Secret>(&(), None).fields(format!("type={TYPE}"));
    let secrets: Informer<Token> = wiring.informer_of(target);
    secrets.add_index(BY_ACCOUNT, |secret| secret.account().map(|key| key.as_str().to_owned()).into_iter().collect());
    let accounts: Informer<ServiceAccount> = wiring.informer();
    let clerk = Clerk {
        secrets: secrets.clone(),
        accounts: accounts.clone(),
        signer: wiring.tokens.clone(),
        root_ca: wiring.root_ca.cloned(),
    };
    let of_account = secrets.clone();
    let controller = desk
        .controller(&secrets, 5)
        .predicate(Predicate::new(|_, secret: &Token| secret.account().is_some()))
        .watches(&accounts, move |account: &ServiceAccount| {
            let (secrets, account) = (of_account.lister().snapshot(), account.key());
            secrets.by_index(BY_ACCOUNT, account.as_str()).map(|secret| secret.key()).collect()
        })
        .build(move |context: Context, key: Key| {
            let clerk = clerk.clone();
            async move { clerk.reconcile(context, key).await }
        });
    if let (Some(published), Some(_)) = (wiring.root_ca, &wiring.tokens) {
        let name = "successions of the root certificate in tokens";
        desk.run_part(Successions::new(name, published, &secrets, controller.handle()))?;
    }
    desk.run(controller)
}

#[derive(Clone)]
struct Clerk {
    secrets: Informer<Token>,
    accounts: Informer<ServiceAccount>,
    signer: Option<TokenSigner>,
    root_ca: Option<RootCa>,
}

impl Clerk {
    async fn reconcile(&self, context: Context, key: Key) -> Result<Action, Error> {
        let Some(secret) = context.read(&self.secrets, &key) else { return Ok(Action::done()) };
        let Some(account) = secret.account() else { return Ok(Action::done()) };
        match self.account(&context, &secret, &account).await? {
            Some(account) => self.fill(&context, &secret, &account).await,
            None => delete(&context, &secret).await,
        }
    }

    /// The account that a Secret speaks for, if it is there and is this very one.
    async fn account(
        &self,
        context: &Context,
        secret: &Token,
        key: &Key,
    ) -> Result<Option<Arc<ServiceAccount>>, Error> {
        if let Some(known) = self.accounts.lister().get(key.as_str()).filter(|account| secret.is_of(account)) {
            return Ok(Some(known));
        }
        // The cache may not have seen the account yet: the server knows.
        let api: Api<ServiceAccount> = Api::namespaced(context.client().clone(), key.namespace().unwrap_or_default());
        Ok(api.get_opt(key.name()).await?.filter(|account| secret.is_of(account)).map(Arc::new))
    }

    /// Puts into a Secret what it lacks.
    async fn fill(&self, context: &Context, known: &Token, account: &ServiceAccount) -> Result<Action, Error> {
        let Some(signer) = &self.signer else { return Ok(Action::done()) };
        let root_ca = self.root_ca.as_ref().map(|certificates| Arc::clone(&certificates.borrow()));
        let root_ca = root_ca.as_deref().unwrap_or_default();
        if known.lacks(root_ca).is_nothing() {
            return Ok(Action::done());
        }
        let api: Api<Secret> = Api::namespaced(context.client().clone(), &known.metadata.namespace);
        let Some(mut secret) = api.get_opt(&known.metadata.name).await? else { return Ok(Action::done()) };
        if secret.metadata.resource_version.as_deref() != Some(&known.metadata.resource_version) {
            // Somebody has changed it: the cache will say so, and how it is then counts.
            return Ok(Action::done());
        }
        let lacks = known.lacks(root_ca);
        let uid = account.metadata.uid.as_deref().unwrap_or_default();
        let name = &*known.metadata.annotations.account;
        let data = secret.data.get_or_insert_default();
        let mut set = |field: &str, value: &str| data.insert(field.to_owned(), ByteString(value.as_bytes().to_vec()));
        if lacks.ca {
            set(CA, root_ca);
        }
        if lacks.namespace {
            set(NAMESPACE, &known.metadata.namespace);
        }
        if lacks.token {
            let (namespace, secret) = (&*known.metadata.namespace, &*known.metadata.name);
            let asked = ToProve { namespace, secret, account: name, account_uid: uid };
            let token = signer(&asked);
            set(TOKEN, &token.map_err(|error| Error::transient(format!("no token could be made: {error}")))?);
        }
        let annotations = secret.metadata.annotations.get_or_insert_default();
        annotations.insert(ACCOUNT.to_owned(), name.to_owned());
        annotations.insert(ACCOUNT_UID.to_owned(), uid.to_owned());
        match api.replace(&known.metadata.name, &PostParams::default(), &secret).await {
            Err(error) if retry::is_not_found(&error) => Ok(Action::done()),
            answer => Ok(answer.map(|_| Action::done())?),
        }
    }
}

async fn delete(context: &Context, secret: &Token) -> Result<Action, Error> {
    let uid = Some(secret.metadata.uid.to_string());
    let preconditions = Some(Preconditions { uid, resource_version: None });
    let api: Api<Secret> = Api::namespaced(context.client().clone(), &secret.metadata.namespace);
    match api.delete(&secret.metadata.name, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
        Err(error) if retry::is_not_found(&error) => Ok(Action::done()),
        other => Ok(other.map(|_| Action::done())?),
    }
}

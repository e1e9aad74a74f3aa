//! `bowline cloud`: runs the local cloud with its HTTP API, and manages a running one.

mod table;

use std::path::Path;

use anyhow::Context as _;
use bowline_cloud::ErrorKind;
use bowline_local::{CloudError, CloudOptions, FaultSpec, LocalCloud, ManagementClient, NewMachine, NewRoute};
use bowline_runtime::Shutdown;
use bowline_settings::BadInput;

use crate::cli::{CloudArgs, CloudCommand, DeleteRouteArgs, EndpointArgs};
use crate::output::{print, say};
use crate::owner_token::{self, TokenFile, default_path};

pub(crate) async fn run(args: &CloudArgs) -> anyhow::Result<()> {
    match &args.command {
        None => serve(args).await,
        Some(command) => manage(command).await,
    }
}

/// Serves the cloud until the process receives SIGINT or SIGTERM.
async fn serve(args: &CloudArgs) -> anyhow::Result<()> {
    let cloud = LocalCloud::open(CloudOptions::from(args)).map_err(to_error)?;
    let shutdown = Shutdown::on_signals().context("cannot listen for signals")?;
    let server = bowline_local::serve(cloud, args.listen).await;
    let server = server.with_context(|| format!("cannot listen on {}", args.listen))?;
    let path = args.owner_token_file.clone().unwrap_or_else(|| default_path(&server.address().to_string()));
    let _token = TokenFile::write(path, server.owner_token())?;
    say(format_args!("cloud ready at http://{}\n", server.address()));
    shutdown.requested().await;
    server.shutdown().await;
    Ok(())
}

/// Reports an unusable snapshot as an error of its flag.
fn to_error(error: CloudError) -> anyhow::Error {
    match error {
        CloudError::Snapshot(..) => {
            BadInput(format!("--snapshot: {error}; use a file that this program wrote, or one that does not exist yet"))
                .into()
        }
        other => other.into(),
    }
}

async fn manage(command: &CloudCommand) -> anyhow::Result<()> {
    let EndpointArgs { endpoint, owner_token_file } = command.at();
    let client =
        ManagementClient::new(endpoint).map_err(|error| BadInput(format!("--endpoint: {}", error.message())))?;
    let client = with_owner_token(client, endpoint, owner_token_file.as_deref())?;
    match execute(&client, command).await {
        Ok(text) => print(format_args!("{text}")),
        Err(error) if error.kind() == ErrorKind::Unavailable && error.status().is_none() => {
            Err(anyhow::Error::new(error)
                .context(format!("the cloud at {endpoint} (is `bowline cloud` running there?)")))
        }
        Err(error) => Err(anyhow::Error::new(error).context(format!("the cloud at {endpoint}"))),
    }
}

/// Adds the owner's token, if there is one. Without it the client can only read, and the cloud rejects changes.
fn with_owner_token(client: ManagementClient, endpoint: &str, file: Option<&Path>) -> anyhow::Result<ManagementClient> {
    let address = endpoint.trim_start_matches("http://").trim_end_matches('/');
    let token = match file {
        Some(path) => owner_token::read(path)
            .map_err(|error| BadInput(format!("--owner-token-file {}: {error}", path.display())))?,
        None => match owner_token::read(&default_path(address)) {
            Ok(token) => token,
            Err(_) => return Ok(client),
        },
    };
    Ok(client.with_token(&token.as_str().into())?)
}

/// Runs a subcommand and returns its output.
async fn execute(client: &ManagementClient, command: &CloudCommand) -> Result<String, bowline_cloud::Error> {
    let no_output = |()| String::new();
    match command {
        CloudCommand::Add(args) => Ok(format!("{}\n", client.add(&NewMachine::from(args)).await?.spec.id)),
        CloudCommand::List(_) => Ok(table::machines(&client.list().await?)),
        CloudCommand::Balancers(_) => Ok(table::balancers(&client.balancers().await?)),
        CloudCommand::Addresses(_) => Ok(table::addresses(&client.addresses().await?)),
        CloudCommand::Routes(_) => {
            Ok(table::routes(&client.route_tables().await?) + &table::errors(&client.route_problems().await?))
        }
        CloudCommand::AddRoute(args) => {
            Ok(format!("{}\n", client.add_route(&args.table.cluster, &NewRoute::from(args)).await?.id))
        }
        CloudCommand::DeleteRoute(args) => delete_routes(client, args).await.map(no_output),
        CloudCommand::Stop(machines) => for_each(&machines.ids, async |id| client.stop(id).await).await,
        CloudCommand::Start(machines) => for_each(&machines.ids, async |id| client.start(id).await).await,
        CloudCommand::Delete(machines) => for_each(&machines.ids, async |id| client.delete(id).await).await,
        CloudCommand::Fault(args) => Ok(format!("{}\n", client.inject(&FaultSpec::from(args)).await?)),
        CloudCommand::Repair(args) => client.repair(args.number).await.map(no_output),
        CloudCommand::Calls(args) => {
            let calls = client.calls().await?;
            if args.reset {
                client.reset_calls().await?;
            }
            Ok(calls.iter().map(|(kind, count)| format!("{kind} {count}\n")).collect())
        }
    }
}

/// Changes one machine after the other, up to the first error.
async fn for_each(
    ids: &[String],
    change: impl AsyncFn(&str) -> Result<(), bowline_cloud::Error>,
) -> Result<String, bowline_cloud::Error> {
    for id in ids {
        change(id).await?;
    }
    Ok(String::new())
}

async fn delete_routes(client: &ManagementClient, args: &DeleteRouteArgs) -> Result<(), bowline_cloud::Error> {
    let cluster = &args.table.cluster;
    let ids = match args.all {
        true => client.routes(cluster).await?.into_iter().map(|route| route.id).collect(),
        false => args.ids.clone(),
    };
    for id in ids {
        client.remove_route(cluster, &id).await?;
    }
    Ok(())
}

impl CloudCommand {
    fn at(&self) -> &EndpointArgs {
        match self {
            CloudCommand::Add(args) => &args.at,
            CloudCommand::List(at) | CloudCommand::Routes(at) => at,
            CloudCommand::Balancers(at) | CloudCommand::Addresses(at) => at,
            CloudCommand::AddRoute(args) => &args.table.at,
            CloudCommand::DeleteRoute(args) => &args.table.at,
            CloudCommand::Stop(args) | CloudCommand::Start(args) | CloudCommand::Delete(args) => &args.at,
            CloudCommand::Fault(args) => &args.at,
            CloudCommand::Repair(args) => &args.at,
            CloudCommand::Calls(args) => &args.at,
        }
    }
}

//! Connecting to the embedded API server with a kubeconfig.

#[path = "fixture/file.rs"]
mod file;

use bowline_apiserver::{ApiServer, Options};
use bowline_kube::{ClientOptions, Cluster, connect};
use file::Scratch;
use futures::future::join_all;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::test]
async fn cl1_a_kubeconfig_leads_to_the_server_and_64_requests_run_side_by_side() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let file = Scratch::write(&server.kubeconfig())?;
    let options = ClientOptions { kubeconfig: Some(file.0.clone()), ..ClientOptions::default() };
    let cluster = Cluster::new(connect(&options).await?);
    let name = "none".into();
    let answers = join_all((0..64).map(|_| cluster.node(&name))).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(None))), "{answers:?}");
    Ok(())
}

#[tokio::test]
async fn cl1_a_master_overrides_the_address_of_the_kubeconfig() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let file = Scratch::write(&server.kubeconfig().replace(&server.url(), "https://127.0.0.1:1"))?;
    let options =
        ClientOptions { kubeconfig: Some(file.0.clone()), master: Some(server.url()), ..ClientOptions::default() };
    assert_eq!(Cluster::new(connect(&options).await?).node(&"none".into()).await?, None);
    Ok(())
}

#[tokio::test]
async fn a_kubeconfig_that_is_none_is_an_error_that_names_it() -> Result<(), Failure> {
    let file = Scratch::write("not: [a, kubeconfig")?;
    let options = ClientOptions { kubeconfig: Some(file.0.clone()), ..ClientOptions::default() };
    let error = connect(&options).await.err().ok_or("expected an error")?.to_string();
    assert!(error.contains(&file.0.display().to_string()), "{error}");
    Ok(())
}

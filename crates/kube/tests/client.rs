//! Connecting to the embedded API server with a kubeconfig.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use bowline_apiserver::{ApiServer, Options};
use bowline_kube::{ClientOptions, Cluster, connect};
use futures::future::join_all;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A file that is gone when the test is over.
struct Kubeconfig(PathBuf);

impl Kubeconfig {
    fn write(text: &str) -> Result<Kubeconfig, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("bowline-kube-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text)?;
        Ok(Kubeconfig(path))
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn cl1_a_kubeconfig_leads_to_the_server_and_64_requests_run_side_by_side() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let file = Kubeconfig::write(&server.kubeconfig())?;
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
    let file = Kubeconfig::write(&server.kubeconfig().replace(&server.url(), "https://127.0.0.1:1"))?;
    let options =
        ClientOptions { kubeconfig: Some(file.0.clone()), master: Some(server.url()), ..ClientOptions::default() };
    assert_eq!(Cluster::new(connect(&options).await?).node(&"none".into()).await?, None);
    Ok(())
}

#[tokio::test]
async fn a_kubeconfig_that_is_none_is_an_error_that_names_it() -> Result<(), Failure> {
    let file = Kubeconfig::write("not: [a, kubeconfig")?;
    let options = ClientOptions { kubeconfig: Some(file.0.clone()), ..ClientOptions::default() };
    let error = connect(&options).await.err().ok_or("expected an error")?.to_string();
    assert!(error.contains(&file.0.display().to_string()), "{error}");
    Ok(())
}

//! Clients from a kubeconfig.

use crate::fixture::file::Scratch;
use bowline_apiserver::{ApiServer, Effect, FaultRule, Options};
use bowline_kube::{ClientOptions, Cluster, RestMetrics, connect};
use futures::future::join_all;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::test]
async fn cl1_a_kubeconfig_is_used_and_64_requests_run_concurrently() -> Result<(), Failure> {
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
async fn cl1_master_overrides_the_address_of_the_kubeconfig() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let file = Scratch::write(&server.kubeconfig().replace(&server.url(), "https://127.0.0.1:1"))?;
    let options =
        ClientOptions { kubeconfig: Some(file.0.clone()), master: Some(server.url()), ..ClientOptions::default() };
    assert_eq!(Cluster::new(connect(&options).await?).node(&"none".into()).await?, None);
    Ok(())
}

#[tokio::test]
async fn the_error_names_an_invalid_kubeconfig() -> Result<(), Failure> {
    let file = Scratch::write("not: [a, kubeconfig")?;
    let options = ClientOptions { kubeconfig: Some(file.0.clone()), ..ClientOptions::default() };
    let error = connect(&options).await.err().ok_or("expected an error")?.to_string();
    assert!(error.contains(&file.0.display().to_string()), "{error}");
    Ok(())
}

#[tokio::test]
async fn requests_are_counted_under_the_names_of_client_go() -> Result<(), Failure> {
    let server = ApiServer::start(Options::default()).await?;
    let file = Scratch::write(&server.kubeconfig())?;
    let registry = prometheus::Registry::new();
    let metrics = Some(RestMetrics::register(&registry)?);
    let options = ClientOptions { kubeconfig: Some(file.0.clone()), metrics, ..ClientOptions::default() };
    server.faults().add(FaultRule {
        verb: Some("get".to_owned()),
        effect: Effect::Status { code: 500.try_into()?, message: "injected".to_owned(), retry_after: None },
        times: Some(1),
        ..FaultRule::default()
    });
    let cluster = Cluster::new(connect(&options).await?);
    assert_eq!(cluster.node(&"none".into()).await?, None);
    let host = server.url().trim_start_matches("https://").to_owned();
    let metrics_text = prometheus::TextEncoder::new().encode_to_string(&registry.gather())?;
    for line in [
        format!("rest_client_requests_total{{code=\"404\",host=\"{host}\",method=\"GET\"}} 1"),
        format!("rest_client_requests_total{{code=\"500\",host=\"{host}\",method=\"GET\"}} 1"),
        format!("rest_client_request_retries_total{{code=\"500\",host=\"{host}\",verb=\"GET\"}} 1"),
        format!("rest_client_request_duration_seconds_count{{host=\"{host}\",verb=\"GET\"}} 2"),
        format!("rest_client_rate_limiter_duration_seconds_count{{host=\"{host}\",verb=\"GET\"}} 2"),
        format!("rest_client_request_size_bytes_sum{{host=\"{host}\",verb=\"GET\"}} 0"),
        format!("rest_client_response_size_bytes_count{{host=\"{host}\",verb=\"GET\"}} 2"),
    ] {
        assert!(metrics_text.contains(&line), "{line}\n{metrics_text}");
    }
    server.shutdown().await;
    assert!(cluster.node(&"none".into()).await.is_err());
    let metrics_text = prometheus::TextEncoder::new().encode_to_string(&registry.gather())?;
    assert!(metrics_text.contains("rest_client_requests_total{code=\"<error>\","), "{metrics_text}");
    Ok(())
}

//! From the bytes of a kubeconfig to the context that is current.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::fields::Fields;
use super::{Authorization, ClientCertificate, Cluster, ExecPlugin, Material, User};

/// Where a cluster keeps what is meant for credential plugins.
const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";
/// The versions of the plugins' protocol.
const EXEC_V1: &str = "client.authentication.k8s.io/v1";
const EXEC_V1BETA1: &str = "client.authentication.k8s.io/v1beta1";
/// Fields of a user that change who we are and that nothing here can follow.
const UNSUPPORTED: &[&str] = &["auth-provider", "as", "as-uid", "as-groups", "as-user-extra"];

pub fn current_context(bytes: &[u8], folder: &Path) -> Result<(Cluster, User), String> {
    let config = document(bytes)?;
    let name = text_at(&config, "current-context").ok_or("current-context: it is not set")?;
    let context = Fields::named(&config, "contexts", name, "context")
        .ok_or_else(|| format!("current-context: there is no context {name:?}"))?;
    let cluster_name =
        context.text("cluster")?.ok_or_else(|| format!("contexts: {name:?} names no cluster"))?;
    let cluster = Fields::named(&config, "clusters", cluster_name, "cluster")
        .ok_or_else(|| format!("contexts: there is no cluster {cluster_name:?}"))?;
    let user = match context.text("user")? {
        Some(user_name) => Some(
            Fields::named(&config, "users", user_name, "user")
                .ok_or_else(|| format!("contexts: there is no user {user_name:?}"))?,
        ),
        None => None,
    };
    let cluster = read_cluster(cluster, folder)?;
    let user = user.map(|user| read_user(user, folder)).transpose()?.unwrap_or_default();
    Ok((cluster, user))
}

fn document(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8")?;
    let options = serde_saphyr::options! { with_snippet: false };
    // The parser's own words may quote the file.
    let parsed = serde_saphyr::from_str_with_options::<Value>(text, options);
    let config = parsed.map_err(|error| match error.location() {
        Some(at) => format!("line {}: it is neither YAML nor JSON", at.line()),
        None => "it is neither YAML nor JSON".to_owned(),
    })?;
    if config.is_object() { Ok(config) } else { Err("it is no kubeconfig".to_owned()) }
}

fn text_at<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value[key].as_str().filter(|text| !text.is_empty())
}

fn read_cluster(cluster: Fields<'_>, folder: &Path) -> Result<Cluster, String> {
    let server = cluster
        .text("server")?
        .ok_or_else(|| format!("clusters: no server found for cluster {:?}", cluster.name))?;
    if cluster.has("proxy-url") {
        return Err(cluster.wrong("proxy-url is not supported: the API server has to be reachable directly"));
    }
    let authority = material(cluster, "certificate-authority-data", "certificate-authority", folder)?;
    let insecure = cluster.flag("insecure-skip-tls-verify")?;
    if insecure && authority.is_some() {
        return Err(cluster.wrong(
            "insecure-skip-tls-verify and a certificate-authority exclude each other: remove one of them",
        ));
    }
    let extensions = cluster.list("extensions")?;
    let extension = extensions.iter().find(|extension| extension["name"] == EXEC_EXTENSION);
    Ok(Cluster {
        server: server.to_owned(),
        tls_server_name: cluster.text("tls-server-name")?.map(str::to_owned),
        insecure,
        authority,
        exec_extension: extension.map(|extension| extension["extension"].clone()),
    })
}

fn read_user(user: Fields<'_>, folder: &Path) -> Result<User, String> {
    if let Some(field) = UNSUPPORTED.iter().find(|field| user.has(field)) {
        return Err(user.wrong(&format!(
            "{field} is not supported: use client-certificate, token, tokenFile, username or exec"
        )));
    }
    let certificate = material(user, "client-certificate-data", "client-certificate", folder)?;
    let key = material(user, "client-key-data", "client-key", folder)?;
    let certificate = match (certificate, key) {
        (Some(certificate), Some(key)) => Some(ClientCertificate { certificate, key }),
        (Some(_), None) => {
            return Err(user.wrong("client-key-data or client-key must be given with a client certificate"));
        }
        (None, Some(_)) => {
            return Err(
                user.wrong("client-certificate-data or client-certificate must be given with a client key")
            );
        }
        (None, None) => None,
    };
    let token = user.text("token")?.map(str::to_owned);
    let token_file = user.text("tokenFile")?.map(|path| beside(folder, path));
    let (username, password) = (user.text("username")?, user.text("password")?);
    let basic = username.is_some() || password.is_some();
    if basic && (token.is_some() || token_file.is_some()) {
        return Err(
            user.wrong("more than one authentication method: token and username, only one is allowed")
        );
    }
    let authorization = if let Some(path) = token_file {
        Authorization::TokenFile(path, token)
    } else if let Some(token) = token {
        Authorization::Token(token)
    } else if basic {
        let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
        Authorization::Basic { username: text(username), password: text(password) }
    } else if certificate.is_none() && user.has("exec") {
        // As upstream: a plugin is asked only if nothing else says who we are.
        Authorization::Exec(Box::new(read_exec(user, folder)?))
    } else {
        Authorization::None
    };
    Ok(User { certificate, authorization })
}

fn read_exec(user: Fields<'_>, folder: &Path) -> Result<ExecPlugin, String> {
    let exec = Fields { value: &user.value["exec"], ..user };
    let wrong = |why: &str| user.wrong(&format!("exec: {why}"));
    let command = exec.text("command")?.ok_or_else(|| wrong("command must be given"))?;
    let api_version = exec.text("apiVersion")?.ok_or_else(|| wrong("apiVersion must be given"))?;
    if ![EXEC_V1, EXEC_V1BETA1].contains(&api_version) {
        return Err(wrong(&format!("apiVersion must be {EXEC_V1} or {EXEC_V1BETA1}")));
    }
    match exec.text("interactiveMode")? {
        Some("Never" | "IfAvailable") => {}
        None if api_version == EXEC_V1BETA1 => {}
        None => return Err(wrong("interactiveMode must be given: Never or IfAvailable")),
        Some("Always") => return Err(wrong("interactiveMode Always cannot work: nobody sits at the agent")),
        Some(_) => return Err(wrong("interactiveMode must be Never or IfAvailable")),
    }
    let mut args = Vec::new();
    for argument in exec.list("args")? {
        args.push(argument.as_str().ok_or_else(|| wrong("args must be strings"))?.to_owned());
    }
    let mut env = Vec::new();
    for variable in exec.list("env")? {
        let name = text_at(variable, "name").ok_or_else(|| wrong("env has a variable without a name"))?;
        env.push((name.to_owned(), variable["value"].as_str().unwrap_or_default().to_owned()));
    }
    Ok(ExecPlugin {
        api_version: api_version.to_owned(),
        // A mere name is looked for in the PATH.
        command: if command.contains('/') {
            beside(folder, command).to_string_lossy().into_owned()
        } else {
            command.to_owned()
        },
        args,
        env,
        install_hint: exec.text("installHint")?.unwrap_or_default().to_owned(),
        provide_cluster_info: exec.flag("provideClusterInfo")?,
    })
}

/// What is in the kubeconfig wins over what is beside it.
fn material(fields: Fields<'_>, data: &str, file: &str, folder: &Path) -> Result<Option<Material>, String> {
    if let Some(bytes) = fields.data(data)? {
        return Ok(Some(Material::Inline(bytes)));
    }
    Ok(fields.text(file)?.map(|path| Material::File(beside(folder, path))))
}

fn beside(folder: &Path, path: &str) -> PathBuf {
    folder.join(path)
}

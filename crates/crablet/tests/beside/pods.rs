//! The pods that both kubelets get, and the state of each that is compared.

use crablet_testbed::images;
use serde_json::Value;

pub struct Case {
    pub name: &'static str,
    /// `spec` in YAML, indented by two. `IMAGE` stands for the shell's image.
    spec: &'static str,
    /// Whether the status has come to where it stays.
    pub settled: fn(&Value) -> bool,
}

impl Case {
    pub fn manifest(&self) -> String {
        let spec = self.spec.replace("IMAGE", images::BUSYBOX);
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {}\n  labels: {{app: beside}}\nspec:\n{spec}",
            self.name
        )
    }
}

pub const CASES: &[Case] = &[
    Case {
        name: "runs",
        spec: "  containers:
  - {name: main, image: IMAGE, imagePullPolicy: Never, command: [sleep, '100000']}
",
        settled: ready,
    },
    Case {
        name: "two-containers",
        spec: "  terminationGracePeriodSeconds: 1
  containers:
  - {name: first, image: IMAGE, imagePullPolicy: IfNotPresent, command: [sleep, '100000']}
  - name: second
    image: IMAGE
    imagePullPolicy: IfNotPresent
    command: [sleep, '100000']
    resources: {requests: {cpu: 10m, memory: 8Mi}, limits: {cpu: 100m, memory: 16Mi}}
",
        settled: ready,
    },
    Case {
        name: "guaranteed",
        spec: "  containers:
  - name: main
    image: IMAGE
    imagePullPolicy: Never
    command: [sleep, '100000']
    resources: {limits: {cpu: 100m, memory: 16Mi}}
    securityContext: {runAsUser: 1000, runAsGroup: 2000, readOnlyRootFilesystem: true}
",
        settled: ready,
    },
    Case {
        name: "host-network",
        spec: "  hostNetwork: true
  containers:
  - {name: main, image: IMAGE, imagePullPolicy: Never, command: [sleep, '100000'], ports: [{containerPort: 31999}]}
",
        settled: ready,
    },
    Case {
        name: "succeeds",
        spec: "  restartPolicy: Never
  containers:
  - {name: main, image: IMAGE, imagePullPolicy: Never, command: [sh, -c, 'echo done > /dev/termination-log']}
",
        settled: |status| status["phase"] == "Succeeded",
    },
    Case {
        name: "fails",
        spec: "  restartPolicy: Never
  containers:
  - {name: main, image: IMAGE, imagePullPolicy: Never, command: [sh, -c, 'exit 3']}
  - {name: other, image: IMAGE, imagePullPolicy: Never, command: ['true']}
",
        settled: |status| status["phase"] == "Failed",
    },
    Case {
        name: "last-words",
        spec: "  restartPolicy: Never
  containers:
  - name: main
    image: IMAGE
    imagePullPolicy: Never
    command: [sh, -c, 'echo what went wrong; exit 1']
    terminationMessagePolicy: FallbackToLogsOnError
",
        settled: |status| status["phase"] == "Failed",
    },
    Case {
        name: "half-done",
        spec: "  restartPolicy: OnFailure
  containers:
  - {name: done, image: IMAGE, imagePullPolicy: Never, command: ['true']}
  - {name: main, image: IMAGE, imagePullPolicy: Never, command: [sleep, '100000']}
",
        settled: |status| {
            status["phase"] == "Running" && container(status, "done")["state"]["terminated"].is_object()
        },
    },
    Case {
        name: "crash-loop",
        spec: "  containers:
  - {name: main, image: IMAGE, imagePullPolicy: Never, command: [sh, -c, 'exit 7']}
",
        settled: |status| {
            let main = container(status, "main");
            main["restartCount"].as_u64() >= Some(1) && main["state"]["waiting"]["reason"] == "CrashLoopBackOff"
        },
    },
    Case {
        name: "no-image",
        spec: "  containers:
  - {name: main, image: 'crablet.test/nowhere:1', imagePullPolicy: Never}
",
        settled: |status| waits(status, "ErrImageNeverPull"),
    },
    Case {
        // A registry that refuses at once: one with a name would be looked up, which takes as long as the machine's name
        // server likes. And the failure itself, since upstream shows the back-off only if it happens to look within it.
        name: "no-registry",
        spec: "  containers:
  - {name: main, image: '127.0.0.1:1/none:1', imagePullPolicy: IfNotPresent}
",
        settled: |status| waits(status, "ErrImagePull"),
    },
    Case {
        name: "no-such-command",
        spec: "  restartPolicy: Never
  containers:
  - {name: main, image: IMAGE, imagePullPolicy: Never, command: [/no/such/command]}
",
        settled: |status| status["phase"] == "Failed",
    },
    Case {
        name: "root-refused",
        spec: "  containers:
  - name: main
    image: IMAGE
    imagePullPolicy: Never
    command: [sleep, '100000']
    securityContext: {runAsNonRoot: true}
",
        settled: |status| waits(status, "CreateContainerConfigError"),
    },
];

fn ready(status: &Value) -> bool {
    let conditions = status["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

fn waits(status: &Value, reason: &str) -> bool {
    container(status, "main")["state"]["waiting"]["reason"] == reason
}

fn container<'a>(status: &'a Value, name: &str) -> &'a Value {
    let all = status["containerStatuses"].as_array();
    all.and_then(|all| all.iter().find(|container| container["name"] == name)).unwrap_or(&Value::Null)
}

package org.stratalog.testing;

import com.github.dockerjava.api.command.InspectContainerResponse;
import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.images.builder.Transferable;
import org.testcontainers.utility.DockerImageName;

/**
 * A broker of stratalog in a container.
 *
 * <pre>{@code
 * try (StratalogContainer broker = new StratalogContainer().withSetting("num.partitions", "3")) {
 *     broker.start();
 *     properties.put("bootstrap.servers", broker.getBootstrapServers());
 * }
 * }</pre>
 *
 * <p>The image is built from {@code deploy/Containerfile}. The port of the host is known only when the container
 * runs, and clients must be told it, so the container waits for the script that starts the broker.
 */
public class StratalogContainer extends GenericContainer<StratalogContainer> {
    private static final DockerImageName IMAGE = DockerImageName.parse("stratalog");
    private static final int KAFKA_PORT = 9092;
    private static final int WEB_PORT = 8080;
    private static final String SCRIPT = "/tmp/start-stratalog";

    private final Map<String, String> settings = new TreeMap<>();

    /** Run the image {@code stratalog:latest}. */
    public StratalogContainer() {
        this(IMAGE);
    }

    /** Run an image, which must be one of stratalog or declared compatible with it. */
    public StratalogContainer(DockerImageName image) {
        super(image);
        image.assertCompatibleWith(IMAGE);
        // What a test asks for: groups that do not wait for more members, small internal topics.
        settings.put("group.initial.rebalance.delay.ms", "0");
        settings.put("offsets.topic.num.partitions", "1");
        settings.put("transaction.state.log.num.partitions", "1");
        withExposedPorts(KAFKA_PORT, WEB_PORT);
        withCreateContainerCmdModifier(command -> command.withEntrypoint("sh", "-c"));
        withCommand("while ! [ -f " + SCRIPT + " ]; do sleep 0.05; done; exec sh " + SCRIPT);
        waitingFor(Wait.forLogMessage("ready broker=.*\\n", 1).withStartupTimeout(Duration.ofMinutes(1)));
    }

    /** Set a key of the broker's configuration, before the start. */
    public StratalogContainer withSetting(String key, String value) {
        if (!key.matches("[A-Za-z0-9._-]+")) {
            throw new IllegalArgumentException("not a key of the configuration: " + key);
        }
        settings.put(key, value);
        return self();
    }

    /** Return HOST:PORT for clients on this machine. */
    public String getBootstrapServers() {
        return getHost() + ":" + getMappedPort(KAFKA_PORT);
    }

    /** Return the address of the console, which has {@code /metrics} and {@code /health/ready} too. */
    public String getWebUrl() {
        return "http://" + getHost() + ":" + getMappedPort(WEB_PORT) + "/";
    }

    @Override
    protected void containerIsStarting(InspectContainerResponse container) {
        String script = startScript(getBootstrapServers(), settings);
        copyFileToContainer(Transferable.of(script, 0755), SCRIPT);
    }

    static String startScript(String address, Map<String, String> settings) {
        StringBuilder script = new StringBuilder("exec stratalog serve --data-dir /var/lib/stratalog");
        script.append(" --listen 0.0.0.0:").append(KAFKA_PORT).append(" --web 0.0.0.0:").append(WEB_PORT);
        script.append(" --set ").append(quoted("advertised.listeners=PLAINTEXT://" + address));
        settings.forEach((key, value) -> script.append(" --set ").append(quoted(key + "=" + value)));
        return script.append('\n').toString();
    }

    private static String quoted(String word) {
        return "'" + word.replace("'", "'\\''") + "'";
    }
}

import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.common.MetadataVersion;

/** One line for each level that is out: level, name, whether metadata changed, and the levels of other features. */
public class MetadataVersions {
    public static void main(String[] args) {
        for (MetadataVersion version : MetadataVersion.VERSIONS) {
            if (!version.isProduction()) {
                continue;
            }
            StringBuilder line = new StringBuilder();
            line.append(version.featureLevel()).append(' ').append(version.version());
            line.append(' ').append(version.didMetadataChange());
            for (Feature feature : Feature.PRODUCTION_FEATURES) {
                line.append(' ').append(feature.featureName()).append('=').append(feature.defaultLevel(version));
            }
            System.out.println(line);
        }
    }
}

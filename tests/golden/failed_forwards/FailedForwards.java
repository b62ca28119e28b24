import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.requests.AbstractRequest;

/** Reads lines "key version request", and writes the responses to a request that failed, and that timed out. */
public class FailedForwards {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            short version = Short.parseShort(words[1]);
            ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(words[2]));
            ApiKeys key = ApiKeys.forId(Integer.parseInt(words[0]));
            AbstractRequest request = AbstractRequest.parseRequest(key, version, new ByteBufferAccessor(body)).request;
            System.out.println(
                response(request, version, Errors.UNKNOWN_SERVER_ERROR.exception())
                    + " " + response(request, version, new TimeoutException()));
        }
    }

    private static String response(AbstractRequest request, short version, Throwable error) {
        ByteBuffer bytes =
            MessageUtil.toByteBufferAccessor(request.getErrorResponse(0, error).data(), version).buffer();
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return HexFormat.of().formatHex(copy);
    }
}

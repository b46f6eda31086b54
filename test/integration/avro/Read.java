import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;

/** Reads values in hexadecimal, one a line, by the schemas of a registry, and prints each as Avro does. */
public class Read {
    public static void main(String[] args) throws Exception {
        Map<Integer, Schema> schemas = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            byte[] value = HexFormat.of().parseHex(line);
            if (value[0] != 0) {
                throw new IOException("no prefix");
            }
            int id = ByteBuffer.wrap(value, 1, 4).getInt();
            Schema schema = schemas.get(id);
            if (schema == null) {
                HttpRequest ask = HttpRequest.newBuilder(URI.create(args[0] + "/schemas/ids/" + id)).build();
                String answer = HttpClient.newHttpClient().send(ask, HttpResponse.BodyHandlers.ofString()).body();
                schema = new Schema.Parser().parse(new ObjectMapper().readTree(answer).get("schema").asText());
                schemas.put(id, schema);
            }
            BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(value, 5, value.length - 5, null);
            System.out.println(new GenericDatumReader<Object>(schema).read(null, decoder));
            if (!decoder.isEnd()) {
                throw new IOException("bytes are left");
            }
        }
    }
}

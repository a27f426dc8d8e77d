# driven: a compilation, a JUnit test
# packages: maven junit4 libsurefire-java libmaven-compiler-plugin-java libmaven-resources-plugin-java default-jdk-headless
mkdir -p src/main/java src/test/java
cat > pom.xml <<X
<project><modelVersion>4.0.0</modelVersion><groupId>a</groupId><artifactId>a</artifactId><version>1</version>
<properties><maven.compiler.source>11</maven.compiler.source><maven.compiler.target>11</maven.compiler.target><project.build.sourceEncoding>UTF-8</project.build.sourceEncoding></properties>
<dependencies><dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version><scope>test</scope></dependency></dependencies></project>
X
echo 'public class A { static int f(int x) { return x * x; } }' > src/main/java/A.java
echo 'public class ATest { @org.junit.Test public void t() { org.junit.Assert.assertEquals(9, A.f(3)); } }' > src/test/java/ATest.java
mvn -o -B -q -Dmaven.repo.local=/usr/share/maven-repo test > log 2>&1 || { tail -5 log; exit 1; }
grep -q 'Tests run: 1, Failures: 0, Errors: 0' target/surefire-reports/*.txt
